"""docs/how-to: the diff of every page applies to this tree, and what the page shows then runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
COPIED = ("graphspec", "compiler", "runtime", "docs", "tests")
BLOCK = re.compile(r"^```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_of_a_page_applies_and_its_program_runs(page: Path, tmp_path: Path) -> None:
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "golden", "properties", "resilience", "peers")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    blocks = dict(BLOCK.findall(page.read_text(encoding="utf-8")))
    assert blocks.keys() == {"diff", "python"}
    subprocess.run(["git", "apply", "--verbose"], input=blocks["diff"], text=True, cwd=tmp_path, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = [sys.executable, "-W", "error", "-c", blocks["python"]]
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

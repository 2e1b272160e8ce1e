"""docs/how-to: the diff of every page applies to this tree, and what the page shows then runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
COPIED = ("graphspec", "compiler", "runtime")
BLOCK = re.compile(r"^```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGED = re.compile(r"^--- a/(\S+)$", re.MULTILINE)
RUNNER = """
import os, runpy, signal, sys, traceback
import tensorflow, torch, torch._dynamo

for folder in map(str.rstrip, sys.stdin):
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        os.chdir(folder)
        sys.path.insert(0, folder)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
        try:
            runpy.run_path("program.py")
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Runs the program in every folder that it is told, in a process of its own; the frameworks are imported only once."""


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """Return a process of the runner."""
    command = [sys.executable, "-W", "error", "-c", RUNNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.xdist_group("how-to")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_of_a_page_applies_and_its_program_runs(page: Path, workdir: Path, runner) -> None:
    blocks = dict(BLOCK.findall(page.read_text(encoding="utf-8")))
    assert blocks.keys() == {"diff", "python"}
    for name in COPIED:
        shutil.copytree(ROOT / name, name)
    for name in set(CHANGED.findall(blocks["diff"])):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, name)
    subprocess.run(["git", "apply", "--verbose"], input=blocks["diff"], text=True, check=True)
    Path("program.py").write_text(blocks["python"], encoding="utf-8")
    print(workdir, file=runner.stdin, flush=True)
    assert runner.stdout.readline() == "0\n", Path("output.txt").read_text(encoding="utf-8")


def test_contributors_are_sent_to_every_page() -> None:
    for place in ("CONTRIBUTING.md", "docs/architecture.md"):
        text = (ROOT / place).read_text(encoding="utf-8")
        assert [page.name for page in PAGES if f"how-to/{page.name})" not in text] == []

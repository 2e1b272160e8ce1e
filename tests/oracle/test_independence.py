"""The oracle is independent of what it judges."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FOREIGN = {"compiler", "runtime"}


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_oracle_shares_no_code_with_what_it_judges():
    modules = [path for path in FOLDER.glob("*.py") if not path.name.startswith("test_")]
    found = {path.name: {name for name in imported(path) if name.split(".")[0] in FOREIGN} for path in modules}
    assert len(found) > 10
    assert not any(found.values()), found


@pytest.mark.needs("torch")
def test_importing_the_oracle_loads_neither_the_compiler_nor_the_runtime():
    code = "import sys, tests.oracle.oracle, tests.oracle.order, tests.oracle.tensors; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parents[1], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded & FOREIGN == set()
    assert "graphspec" in loaded

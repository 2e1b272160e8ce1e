"""`import stepgraph` has what the packages export, imports them late, and says what hides them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import compiler
import graphspec
import runtime
import stepgraph

ROOT = Path(__file__).parents[2]


def run(code, folder):
    """Run code in another process; return what it prints."""
    path = f"import sys; sys.path.append({str(ROOT)!r})\n"
    done = subprocess.run([sys.executable, "-c", path + code], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_its_names_are_those_of_the_packages():
    for package in (graphspec, compiler, runtime):
        for name in {*package.__all__} & {*stepgraph.__all__}:
            assert getattr(stepgraph, name) is getattr(package, name)
    assert stepgraph.library.adam(0.1) == {"name": "adam", "lr": 0.1}
    assert {"Graph", "library", "load"} <= {*dir(stepgraph)}
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        stepgraph.lod  # noqa: B018


def test_nothing_is_imported_before_it_is_used(tmp_path):
    code = (
        "import stepgraph, json; before = [*sys.modules]; stepgraph.Graph\nprint(json.dumps([before, [*sys.modules]]))"
    )
    before, after = map(set, json.loads(run(code, tmp_path)))
    assert not {"graphspec", "compiler", "runtime", "numpy", "pydantic"} & before
    assert "graphspec" in after
    assert not {"runtime", "numpy", "torch", "tensorflow"} & after


@pytest.mark.parametrize("name", ["graphspec", "compiler", "runtime"])
@pytest.mark.parametrize("is_folder", [False, True])
def test_what_hides_a_package_is_named(name, is_folder, tmp_path):
    path = tmp_path / name / "__init__.py" if is_folder else tmp_path / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("x = 1\n", encoding="utf-8")
    for early in ("", f"import {name}; "):
        printed = run(f"{early}import stepgraph", tmp_path)
        assert f"ImportError: '{name}' is a package of stepgraph, and {path} hides it" in printed

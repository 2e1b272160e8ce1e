"""`stepgraph fmt`: files, --check, --diff, standard input; and what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphspec.write.format import format_document
from runtime.cli import execute
from tests.cli.specs import NAMES, SPECS

ROOT = Path(__file__).parents[2]
EXAMPLES = [path for path in SPECS if path.is_relative_to(ROOT / "examples")]
LOOSE = """name: two   # its name
graphspec: 1

inputs: {x: {shape: [batch, 4]}}
models:
  net:
    optimizer: sgd
    layers: [{linear: 3}]
ops:
  y: {inputs: x, forward: 'net'}
  error: {call: mean, inputs: y}  # small
  learn: {update: net, loss: error}
"""
TIDY = """graphspec: 1
name: two  # its name

inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: 3}], optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  error: {call: mean, inputs: y}  # small
  learn: {update: net, loss: error}
"""


@pytest.fixture
def loose(workdir: Path) -> Path:
    path = Path("loose.yaml")
    path.write_text(LOOSE)
    return path


def test_a_file_is_rewritten(loose, capsys):
    assert execute(["fmt", "loose.yaml"]) == 0
    assert capsys.readouterr().out == "formatted loose.yaml\n"
    assert loose.read_text() == TIDY
    assert execute(["fmt", "loose.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert loose.read_text() == TIDY


def test_check_writes_nothing_and_fails(loose, capsys):
    assert execute(["fmt", "--check", "loose.yaml"]) == 1
    assert capsys.readouterr().out == "would format loose.yaml\n"
    assert loose.read_text() == LOOSE
    loose.write_text(TIDY)
    assert execute(["fmt", "--check", "loose.yaml"]) == 0
    assert capsys.readouterr().out == ""


def test_diff_shows_what_would_change(loose, capsys):
    assert execute(["fmt", "--diff", "loose.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- loose.yaml", "+++ loose.yaml (formatted)"]
    assert {"-  y: {inputs: x, forward: 'net'}", "+  y: {forward: net, inputs: x}"} <= set(lines)
    assert loose.read_text() == LOOSE
    assert execute(["fmt", "--diff", "--check", "loose.yaml"]) == 1


def test_several_files_are_counted_and_one_that_is_broken_stops_no_other(loose, capsys):
    Path("tidy.yaml").write_text(TIDY)
    Path("broken.yaml").write_text("a: [1, 2\n")
    assert execute(["fmt", "broken.yaml", "loose.yaml", "tidy.yaml", "missing.yaml"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "formatted loose.yaml\n"
    assert "broken.yaml:1:4" in printed.err
    assert "there is no file 'missing.yaml'" in printed.err
    assert printed.err.endswith("1 file formatted, 1 unchanged\n")
    assert Path("broken.yaml").read_text() == "a: [1, 2\n"


def pipe(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runtime.cli", "fmt", *options, "-"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=text, env=env, capture_output=True, text=True, check=False)


def test_standard_input_goes_to_standard_output(workdir):
    assert (done := pipe(LOOSE)).returncode == 0
    assert done.stdout == TIDY
    assert (done := pipe('{"name": "a", "graphspec": 1}')).returncode == 0
    assert done.stdout == '{\n  "graphspec": 1,\n  "name": "a"\n}\n'
    assert (done := pipe("{name: a, graphspec: 1}", "--check")).returncode == 1
    assert done.stdout == "would format <stdin>\n"
    assert (done := pipe("a: [1")).returncode == 1
    assert "<stdin>:1:4" in done.stderr


@pytest.mark.sample(6)
@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_a_formatted_spec_does_not_differ(workdir, capsys, spec):
    copy = Path(spec.name)
    copy.write_text(spec.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("unpaired.npz",):  # a length of data in a neighbour's folder
        copy.write_text(copy.read_text().replace(f"../cyclegan/{name}", str(ROOT / "examples" / "cyclegan" / name)))
    before = Path(f"before-{spec.name}")
    before.write_text(copy.read_text())
    assert execute(["fmt", str(copy)]) == 0
    capsys.readouterr()
    assert execute(["diff", str(before), str(copy)]) == 0
    told = capsys.readouterr().out
    assert "\ndeclared: nothing is different\n" in told
    assert told.endswith("\nthe schedule is the same: no instruction, decision or warning is different\n")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_becomes_longer(path):
    text = path.read_text(encoding="utf-8")
    assert len(format_document(text, path.name).splitlines()) <= len(text.splitlines())


def test_it_imports_neither_a_framework_nor_numpy(loose):
    code = (
        "import sys; from runtime.cli import execute; code = execute(['fmt', 'loose.yaml']);"
        "print(code, sorted({'torch', 'tensorflow', 'numpy', 'networkx'} & {*sys.modules}))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "formatted loose.yaml\n0 []\n"

"""--allow: everything that is missing is named at once; a run remembers it for its user, and for nobody else."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from runtime.checkpoints.format import seal
from runtime.cli import execute
from runtime.train.allowed import STATE
from tests.resilience import processes

pytestmark = pytest.mark.needs("torch")

SPEC = """graphspec: 1
name: line
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models:
  net: {class: "nets:Line", optimizer: {name: sgd, lr: 0.1}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: "losses:squared", inputs: [guess, y]}
  learn: {update: net, loss: error}
outputs: [error]
data:
  train: {class: "points:Points", batch: 10}
  test: {class: "more:Points", batch: 10}
run: {steps: 4, eval: {every: 4 steps}}
"""
NETS = """
import torch

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.weight * x
"""
LOSSES = "def squared(guess, y):\n    return ((guess - y) ** 2).mean()\n"
POINTS = """
import numpy as np

class Points:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        x = np.array([index / 40], dtype=np.float32)
        return {"x": x, "y": 3 * x}
"""
ALL = [word for name in ("nets", "losses", "points", "more") for word in ("--allow", name)]


@pytest.fixture
def spec(workdir: Path, monkeypatch) -> Path:
    monkeypatch.setenv(STATE, str(workdir / "state"))
    sources = {"nets": NETS, "losses": LOSSES, "points": POINTS, "more": POINTS}
    for name, text in {"line.yaml": SPEC, **{f"{name}.py": text for name, text in sources.items()}}.items():
        Path(name).write_text(text)
    return workdir


@pytest.fixture
def run(spec: Path) -> Path:
    assert execute(["run", "line.yaml", *ALL]) == 0
    return Path("runs/line")


def test_one_error_names_all_that_is_missing_and_the_line_to_add(spec, capsys):
    assert execute(["run", "line.yaml"]) == 1
    told = capsys.readouterr().err
    assert told.count("error[") == 1
    assert "'nets:Line' may not be imported: package 'nets' is not allowed (allowed: nothing)" in told
    assert "--> line.yaml:5:" in told
    for path, place in (("losses:squared", "8:17"), ("points:Points", "12:18"), ("more:Points", "13:17")):
        assert f"'{path}' at line.yaml:{place}\n" in told
    assert f"if you trust them, add: {' '.join(ALL)};" in told
    assert not Path("runs").exists()
    line = told.split("add: ")[1].split(";")[0]
    assert execute(["run", "line.yaml", *line.split()]) == 0


def test_one_error_names_what_is_still_missing(spec, capsys):
    assert execute(["run", "line.yaml", "--allow", "nets", "--allow", "points"]) == 1
    assert "if you trust them, add: --allow losses --allow more;" in capsys.readouterr().err


def test_resume_eval_and_export_repeat_what_the_run_was_allowed(run, capsys):
    assert execute(["run", "line.yaml", "--resume", "--steps", "8"]) == 0
    assert execute(["eval", "runs/line"]) == 0
    assert execute(["export", "runs/line"]) == 0
    assert execute(["run", "line.yaml", "--resume", "--steps", "12", "--out", "runs/line"]) == 0


def test_another_process_of_the_same_user_repeats_it_too(run):
    output, inherit = Path("output.txt").resolve(), partial(processes.set_variable, STATE, os.environ[STATE])
    process = processes.start(["eval", str(run.resolve())], Path("/"), output, inherit)
    process.join(60)
    assert process.exitcode == 0, output.read_text()
    assert "line" in output.read_text()


def refused(capsys, *arguments: str) -> None:
    capsys.readouterr()
    assert execute(arguments) == 1
    told = capsys.readouterr().err
    assert "error[GS201]" in told
    assert "add: --allow nets --allow losses" in told


def test_a_run_of_another_user_brings_no_permission(run, capsys, monkeypatch):
    monkeypatch.setenv(STATE, "elsewhere")
    for command in (["eval", "runs/line"], ["export", "runs/line"], ["run", "line.yaml", "--resume", "--steps", "8"]):
        refused(capsys, *command)
    assert not Path("elsewhere").exists()


@pytest.mark.parametrize("move", [shutil.copytree, shutil.move])
def test_a_run_that_was_copied_or_moved_is_unknown(run, capsys, move):
    move("runs/line", "runs/other")
    refused(capsys, "eval", "runs/other")
    refused(capsys, "export", "runs/other")
    assert execute(["eval", "runs/other", *ALL]) == 0


def edit(folder: Path, **changes: str) -> None:
    """Change the record of a run as somebody else could, with a checksum that fits."""
    content = json.loads((folder / "run.json").read_text())
    del content["checksum"]
    (folder / "run.json").write_bytes(seal({**content, **changes}))


def test_another_run_in_the_place_of_the_first_is_unknown(run, capsys):
    edit(run, id="0" * 32)
    refused(capsys, "eval", "runs/line")


@pytest.mark.parametrize("id", ["", "../allowed", "0" * 31, "x" * 32])
def test_a_record_names_no_other_file_of_the_users(run, capsys, id):
    edit(run, id=id)
    refused(capsys, "eval", "runs/line")


def test_a_record_that_names_another_folder_of_code_is_unknown(run, capsys):
    Path("evil").mkdir()
    for name in ("nets", "losses", "points", "more"):
        Path("evil", f"{name}.py").write_text("raise SystemExit('imported')")
    edit(run, spec_path="../../evil/line.yaml")
    refused(capsys, "eval", "runs/line")


def test_what_the_record_says_is_allowed_is_no_permission(run, capsys):
    shutil.rmtree("state")
    assert json.loads((run / "run.json").read_text())["allow"] == ["nets", "losses", "points", "more"]
    refused(capsys, "eval", "runs/line")


def test_only_what_is_typed_for_a_run_is_remembered(run, capsys, monkeypatch):
    kept = [json.loads(path.read_text()) for path in Path("state/allowed").iterdir()]
    assert [each["allow"] for each in kept] == [["nets", "losses", "points", "more"]]
    monkeypatch.setenv(STATE, str(Path("fresh").resolve()))
    assert execute(["eval", "runs/line", *ALL]) == 0
    refused(capsys, "eval", "runs/line")
    assert execute(["run", "line.yaml", "--resume", "--steps", "8", *ALL]) == 0  # the user answers for the run again
    assert execute(["eval", "runs/line"]) == 0


def test_a_state_folder_that_cannot_be_written_to_is_a_note(spec, capsys, monkeypatch):
    Path("taken").write_text("")
    monkeypatch.setenv(STATE, str(Path("taken").resolve()))
    assert execute(["run", "line.yaml", *ALL]) == 0
    assert "note: `--allow` is not remembered for runs/line: cannot write" in capsys.readouterr().err
    refused(capsys, "eval", "runs/line")


def test_a_damaged_file_is_no_permission(run, capsys):
    for path in Path("state/allowed").iterdir():
        path.write_text('{"run": 3')
    refused(capsys, "eval", "runs/line")


def test_where_nothing_is_allowed_nothing_is_kept(workdir, monkeypatch):
    monkeypatch.setenv(STATE, str(workdir / "state"))
    assert execute(["init", "gan"]) == 0
    assert execute(["run", "gan.yaml"]) == 1
    assert not Path("state").exists()

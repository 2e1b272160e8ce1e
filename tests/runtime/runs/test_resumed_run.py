"""Which run goes on, what has changed since, and from which checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from graphspec.write.render import render
from runtime.checkpoints import Store
from runtime.train.resume import find_checkpoint, find_newest, find_past
from runtime.train.run_folder import write_record
from tests.runtime.checkpoints.contents import content_at
from tests.runtime.runs.test_record import RECORD

TEXT = """
graphspec: 1
name: line
inputs: {x: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, x]}
  learn: {update: net, loss: loss}
data: {train: {source: npz, path: x.npz, batch: 10}}
run: {steps: 5}
"""
SPEC = load(TEXT)


def make(folder, name="line"):
    Path(folder).mkdir(parents=True)
    write_record(Path(folder), RECORD.model_copy(update={"name": name, "spec": render(SPEC)}))
    return Path(folder)


def test_a_run_is_found_with_what_the_spec_says_differently(workdir):
    make("here")
    past = find_past(load(TEXT, ["models.net.optimizer.lr=0.2", "run.steps=7"]), Path("here"))
    assert (past.folder, past.record.name) == (Path("here"), "line")
    assert {change.path: change.kind for change in past.changes} == {
        "models.net.optimizer.lr": "hyper",
        "run.steps": "run",
    }


def test_the_same_spec_written_otherwise_has_not_changed(workdir):
    make("here")
    assert find_past(load(TEXT.replace("lr: 0.1", "lr: 1.0e-1")), Path("here")).changes == ()


def test_another_structure_is_refused(workdir):
    make("here")
    with pytest.raises(SpecError, match=r"GS245.*'here' cannot be resumed"):
        find_past(load(TEXT.replace("{linear: 1}", "{linear: 1}, relu")), Path("here"))


def test_the_newest_is_the_last_number_that_holds_a_run_of_the_name(workdir):
    for number in (2, 9, 10):
        make(f"runs/line-{number}")
    make("runs/line-11", name="line-11")
    Path("runs/line-12").mkdir()
    make("runs/line-x")
    make("runs/line-old-13", name="line-old")
    assert find_newest("line") == Path("runs/line-10")


@pytest.mark.parametrize("name", ["a b/c", "..", "r[0-9]"])
def test_a_name_that_is_no_folder_is_found_under_the_one_it_became(workdir, name):
    from runtime.folder import make_folder

    folders = [make_folder(name, None) for _ in range(2)]
    for folder in folders:
        write_record(folder, RECORD.model_copy(update={"name": name}))
    assert find_newest(name) == folders[1]


def test_without_a_run_there_is_none(workdir):
    assert find_newest("line") is None
    Path("runs").write_text("a file")
    assert find_newest("line") is None


def test_a_damaged_record_of_the_newest_is_told_and_not_passed_over(workdir):
    make("runs/line")
    (make("runs/line-2") / "run.json").write_text("{}")
    with pytest.raises(SpecError, match=r"GS243.*line-2"):
        find_past(SPEC, None)


def test_the_checkpoint_is_the_newest_and_what_a_kill_left_is_gone(tmp_path):
    store = Store(tmp_path / "checkpoints", 3)
    assert find_checkpoint(store) is None
    for step in (5, 10):
        store.save(content_at(step), step)
    left = store.folder / ".step-15-0a1b2c3d.new"
    left.mkdir()
    found = find_checkpoint(store)
    assert found.sections == content_at(10).sections
    assert not left.exists()

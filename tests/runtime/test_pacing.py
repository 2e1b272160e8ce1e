"""The pace of a run is found from bundled data and files, and never by importing what a spec names."""

from __future__ import annotations

import importlib
import sys
from importlib.resources import files

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from runtime import build
from runtime.cli import execute
from runtime.train.pace import find_declared_pace

TEXT = """graphspec: 1
name: paced
inputs: {image: {shape: [batch, 1, 8, 8]}, label: {shape: [batch], dtype: int64}}
models: {net: {layers: [flatten, {linear: 10}], optimizer: {name: sgd, lr: LR}}}
ops:
  scores: {forward: net, inputs: image}
  error: {loss: cross_entropy, inputs: [scores, label]}
  fit: {update: net, loss: error, WHEN}
DATA
"""
DIGITS = "data: {train: {source: digits, batch: 64}}"
USER = "data: {train: {class: 'nowhere:Source', batch: 64}}"


def write(folder, *, lr="0.1", when="every: 1", data=DIGITS):
    """Write the spec into a folder."""
    path = folder / "spec.yaml"
    path.write_text(TEXT.replace("LR", lr).replace("WHEN", when).replace("DATA", data))
    return path


def pace_of(path):
    return find_declared_pace(load(path), path)


def count_digits():
    """Return how many training samples the bundled file has, counted in the file itself."""
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file) as held:
        return int((~held["is_test"]).sum())


def test_the_pace_of_the_digits_is_that_of_their_file(tmp_path):
    path = write(tmp_path, when="start: 2 epochs", data=DIGITS + "\nrun: {epochs: 3}")
    steps = count_digits() // 64
    assert pace_of(path) == Pace(epoch=steps, batch=64, run=3 * steps)


def test_a_last_batch_that_is_not_full_counts_where_it_is_kept(tmp_path):
    data = "data: {train: {source: digits, batch: 64, drop_last: false}}"
    assert pace_of(write(tmp_path, when="until: 1 epochs", data=data)).epoch == -(-count_digits() // 64)


def test_a_file_of_arrays_is_counted(tmp_path):
    np.savez(tmp_path / "d.npz", image=np.zeros((50, 1, 8, 8), "float32"), label=np.zeros(50, "int64"))
    path = write(tmp_path, when="until: 1 epochs", data="data: {train: {source: npz, path: d.npz, batch: 8}}")
    assert pace_of(path).epoch == 6


def test_nothing_is_read_where_nothing_depends_on_it(tmp_path):
    missing = "data: {train: {source: npz, path: nowhere.npz, batch: 8}}"
    assert pace_of(write(tmp_path, when="start: 5", data=missing)) is None
    assert pace_of(write(tmp_path, when="start: 2 epochs", data=missing)).epoch is None


def test_a_source_of_the_users_own_is_not_imported(tmp_path):
    assert pace_of(write(tmp_path, when="start: 2 epochs", data=USER)).epoch is None


@pytest.mark.parametrize(
    "lr", ["{schedule: linear, from: 1, over: 2 epochs}", "{schedule: constant, value: 1, clock: epochs}"]
)
def test_schedules_ask_for_a_pace_too(tmp_path, lr):
    assert pace_of(write(tmp_path, lr=lr)).epoch == count_digits() // 64


def test_the_commands_use_the_pace(tmp_path, capsys):
    path = str(write(tmp_path, when="start: 2 epochs"))
    assert [execute(["check", path]), execute(["plan", path]), execute(["explain", path, "fit"])] == [0, 0, 0]
    assert f"fit starts at step {count_digits() // 64 + 1} (start: 2 epochs)" in capsys.readouterr().out
    assert execute(["emit", path]) == 0
    assert f"start={count_digits() // 64 + 1}" in capsys.readouterr().out


def test_check_says_what_it_cannot_know(tmp_path, capsys):
    assert execute(["check", str(write(tmp_path, when="start: 2 epochs", data=USER))]) == 0
    printed = capsys.readouterr()
    assert "note[E-PACE]" in printed.err
    assert "only `run` imports it" in printed.err
    assert "ok, 0 warnings, 1 note" in printed.out


def test_plan_prints_what_it_cannot_know_as_it_is_written(tmp_path, capsys):
    assert execute(["plan", str(write(tmp_path, when="start: 2 epochs", data=USER))]) == 0
    assert "not counted yet" in (out := capsys.readouterr().out)
    assert "`start: 2 epochs` of" in out


def test_others_that_look_at_a_plan_go_on_without_it_too(tmp_path):
    path = str(write(tmp_path, when="start: 2 epochs", data=USER))
    assert execute(["explain", path, "fit"]) == 0
    assert execute(["diff", path, path]) == 0


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(
    "missing",
    [
        {"when": "start: 2 epochs"},
        {"when": "accumulate: {steps: 3, on_epoch_end: drop}"},
        {"lr": "{schedule: cosine, from: 0.1, over: 3 epochs}"},
    ],
)
def test_a_file_without_a_length_is_for_reading(tmp_path, capsys, monkeypatch, backend, missing):
    path = write(tmp_path, **missing, data=USER)
    assert execute(["emit", str(path), "--backend", backend]) == 0
    printed = capsys.readouterr()
    assert "note[E-PACE]" in printed.err
    assert "This file is for reading, and `build` raises." in printed.out
    (tmp_path / "emitted_for_reading.py").write_text(printed.out)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "emitted_for_reading", raising=False)
    module = importlib.import_module("emitted_for_reading")
    with pytest.raises(ValueError, match=r"E-PACE: .*cannot be counted.*: it is not known how many steps an epoch has"):
        module.build()


def test_what_is_built_must_be_known(tmp_path):
    path = write(tmp_path, when="start: 2 epochs", data=USER)
    plan = compile_step(load(path), pending=True)
    with pytest.raises(SpecError, match=r"error\[E-PACE\]"):
        build(plan, device="cpu", allow=["mydata"])


def test_what_no_length_would_fix_is_an_error_all_the_same(tmp_path, capsys):
    uneven = "every: 2, start: 5 updates"
    assert execute(["check", str(write(tmp_path, when=uneven, data=USER))]) == 1
    assert "error[E-PACE]" in capsys.readouterr().err

"""Data that fail and signals that come while a run is under way: it says so, and goes on later as if nothing had."""

from __future__ import annotations

import os
import shutil
from functools import partial

import pytest

from runtime.checkpoints import read_checkpoint
from tests.resilience import processes
from tests.resilience.conditions import ALLOWED, differences, go_on, make, refuse, steps, strike_in_write
from tests.resilience.conftest import STREAM

pytestmark = [pytest.mark.xdist_group("conditions"), pytest.mark.needs("torch")]

WRONG = {
    "missing": ("GS223", "the source has no 'y' for the input 'y'"),
    "shape": ("GS228", "the source gives 'x' as [batch, 3], the spec declares [batch, 4]"),
    "dtype": ("GS228", "'x'"),
    "nan": ("GS250", "input 'x' has 5 values not finite: nan at row 0, [2]"),
    "label": ("GS251", "outside 0 to 2"),
    "none": ("GS225", "NoneType"),
    "raise": ("GS226", "OSError: the camera is gone"),
}


@pytest.mark.long
def test_wrong_batches_end_the_run_with_what_was_trained_saved_each_time_it_goes_on(whole_stream, tmp_path):
    make(tmp_path, *STREAM)
    for number, (what, (code, found)) in enumerate(WRONG.items(), start=10):
        more = ["--resume"] if number > 10 else []  # the batches before are read again, and are right then
        told = refuse(tmp_path, *more, trouble=f"train {number} {what}")
        assert f"error[{code}]: data.train, epoch 2, batch {number - 8}: " in told
        assert found in told
        assert "= help: " in told
        assert max(steps(tmp_path / "out")) == number - 1
    go_on(tmp_path)
    assert differences(whole_stream, tmp_path / "out") == []


def test_a_batch_that_does_not_fit_the_step_is_told_with_its_step(whole_stream, tmp_path):
    told = refuse(make(tmp_path, *STREAM), trouble="train 14 rows")
    assert "error[GS209]: input 'y' has batch = 2, but 'x' has batch = 5" in told
    assert "= note: in step 14 of mode train" in told
    assert max(steps(tmp_path / "out")) == 12  # the best so far
    go_on(tmp_path)
    assert differences(whole_stream, tmp_path / "out") == []


def test_test_data_that_fail_end_the_run_with_what_was_trained_saved(whole, tmp_path):
    told = refuse(make(tmp_path), trouble="test 48 raise")  # in the second of the evaluations of 40 samples
    assert "error[GS226]: data.test, epoch 1, batch 2: the source raised OSError: the camera is gone" in told
    assert max(steps(tmp_path / "out")) == 12
    go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_a_source_without_batches_is_told_before_the_first_step_and_the_run_begins_when_it_has_some(tmp_path):
    make(tmp_path, *STREAM, ("batch: 5}\n  test", "args: {batches: 0}, batch: 5}\n  test"))
    assert "error[GS227]: data.train, epoch 1, batch 1: the source has no full batch" in refuse(tmp_path)
    assert steps(tmp_path / "out") == ()
    assert "24 steps in" in go_on(tmp_path, "-s", "data.train.args.batches=8")


def test_a_source_that_ends_before_the_place_of_the_run_is_told(tmp_path):
    refuse(make(tmp_path, *STREAM), trouble="train 14 raise")
    told = refuse(tmp_path, "--resume", "-s", "data.train.args={batches: 4}")
    assert "error[GS252]: data.train" in told
    assert "the source ended after 4 batches, 5 had been taken" in told
    assert steps(tmp_path / "out") == (12, 13)


# -- signals ----------------------------------------------------------------------------------------------------------

MOMENTS = (
    ("train 21 SIGINT", 5),
    ("test 8 SIGTERM", 6),
    ("train 11 SIGTERM", 9),
    ("test 8 SIGINT", 12),
    ("test 110 SIGTERM", 24),  # the last of three evaluations of 40 samples, of which one was due
)
"""Which sample of a set, counted since the run went on, brings a signal, and the step that is under way or made."""


def test_signals_let_a_step_end_and_save_and_an_evaluation_is_made_again(whole, tmp_path):
    make(tmp_path)
    for number, (trouble, step) in enumerate(MOMENTS):
        told = refuse(tmp_path, *["--resume"][:number], code=130, trouble=trouble)
        name = trouble.split()[-1]
        assert f"interrupted ({name}) after step {step}; what was trained so far is saved, and --resume" in told
        assert max(steps(tmp_path / "out")) == step
    go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_a_signal_while_the_step_is_built_leaves_nothing(signal, tmp_path):
    before = sorted(os.listdir(make(tmp_path)))
    assert refuse(tmp_path, code=130, trouble=f"build 1 {signal}").endswith("interrupted")
    assert sorted(set(os.listdir(tmp_path)) - {"output.txt", "__pycache__"}) == before


def test_a_signal_anywhere_within_a_checkpoint_write_lets_it_be_written(whole, tmp_path):
    make(tmp_path)
    for number, step in enumerate((5, 6, 10)):
        before = partial(strike_in_write, number + 1, ("SIGTERM", "SIGINT", "SIGTERM")[number])
        told = refuse(tmp_path, *["--resume"][:number], code=130, before=before)
        assert f"after step {step};" in told
        assert max(steps(tmp_path / "out")) == step
    go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_ctrl_c_twice_anywhere_within_a_checkpoint_write_stops_at_once_and_leaves_none(whole, tmp_path):
    make(tmp_path)
    for number in range(3):
        before = partial(strike_in_write, number + 1, "SIGINT", "SIGINT")
        assert refuse(tmp_path, *["--resume"][:number], code=130, before=before).endswith("interrupted")
        assert steps(tmp_path / "out") == ()
    assert "resuming after" not in go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_ctrl_c_twice_while_it_trains_loses_the_steps_after_the_newest_checkpoint(whole, tmp_path):
    assert refuse(make(tmp_path), code=130, trouble="train 71 SIGINT SIGINT").endswith("interrupted")
    assert steps(tmp_path / "out") == (6, 10)
    assert "resuming after step 10" in go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_an_evaluation_of_an_average_that_is_interrupted_leaves_the_weights_where_they_are(tmp_path):
    refuse(make(tmp_path), "--steps", "12", code=130, trouble="test 48 SIGINT")
    refuse(tmp_path, "--steps", "12", out="other", code=0)
    cut, other = (read_checkpoint(tmp_path / out / "checkpoints" / "step-12").arrays for out in ("out", "other"))
    weights = [name for name in cut if name.startswith(("models.", "optimizers."))]
    assert [name for name in weights if cut[name].tobytes() != other[name].tobytes()] == []
    assert (cut["models.average.0.weight"] != cut["models.net.0.weight"]).all()


def test_ctrl_c_of_an_evaluation_that_was_asked_for_changes_nothing(whole, tmp_path):
    make(tmp_path)
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "trouble.txt").write_text("test 8 SIGINT")
    ended = processes.run(["eval", "out", *ALLOWED], tmp_path)
    assert (ended.code, ended.output) == (130, "interrupted\n")
    assert differences(whole, tmp_path / "out") == []

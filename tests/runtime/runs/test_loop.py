"""The training loop: what it logs, when it reads from the device, and how it stops."""

from __future__ import annotations

import io
import os
import signal
from itertools import repeat

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from runtime.problems import problem
from runtime.train.display import Plain
from runtime.train.evaluate import Evaluation
from runtime.train.logs import read_latest
from runtime.train.loop import BestMetric, Interval, Loop, RunSchedule, RunState


class Device:
    """A step that counts: the outputs are tickets, and only `numpy` turns a ticket into a number."""

    def __init__(self, outputs):
        self.outputs = outputs
        self.steps = 0
        self.read: list[int] = []

    def __call__(self, batch, mode="train"):
        self.steps += 1
        return {
            name: (self.steps, make(self.steps)) for name, make in self.outputs.items() if make(self.steps) is not None
        }

    def numpy(self, value):
        self.read.append(value[0])
        return np.asarray(value[1])

    def reset(self, mode="eval"):
        pass

    def end_epoch(self, mode="train"):
        self.ended = getattr(self, "ended", 0) + 1


class Batches:
    """Batches in epochs of a length; None ends an epoch, as a feed says it."""

    def __init__(self, batches=None, length=None):
        self.batches = iter(repeat({})) if batches is None else batches
        self.length, self.index, self.epoch = length, 0, 0

    def next(self):
        if self.index == self.length:
            self.index, self.epoch = 0, self.epoch + 1
            return None
        self.index += 1
        return next(self.batches)


class Saves:
    """A saver that notes at which steps it was asked, and whether an evaluation was due."""

    def __init__(self):
        self.steps, self.due, self.planned = [], [], []

    def save(self, run, *, planned):
        self.steps.append(run.made)
        self.due.append(run.due)
        self.planned.append(planned)


def train(device: Device, steps: int | None, log_every: int, batches=None, length=None, state=None, **others):
    shown = io.StringIO()
    times = {name: others.pop(name) for name in ("evaluate", "save", "epochs") if name in others}
    loop = Loop(
        step=device,
        feed=others.pop("feed", None) or Batches(batches, length),
        run_schedule=RunSchedule(steps=steps, log_every=log_every, **times),
        display=Plain(shown, steps),
        state=state or RunState(),
        **others,
    )
    return loop.run(), shown.getvalue()


def test_the_first_the_last_and_every_few_steps_are_logged():
    outcome, _ = train(Device({"loss": float}), steps=23, log_every=10)
    assert [(row.step, row.values["loss"]) for row in outcome.rows] == [(1, 1), (10, 10), (20, 20), (23, 23)]
    assert (outcome.steps, outcome.interrupted) == (23, "")


def test_only_logged_steps_wait_for_the_device():
    device = Device({"loss": float})
    train(device, steps=100, log_every=40)
    assert device.read == [1, 40, 80, 100]


def test_an_output_that_fires_seldom_shows_its_latest_value():
    seldom = Device({"loss": float, "actor": lambda step: step / 10 if step % 3 == 0 else None})
    outcome, _ = train(seldom, steps=20, log_every=10)
    assert [row.values.get("actor") for row in outcome.rows] == [None, 0.9, 1.8]


def test_an_output_that_did_not_fire_since_the_last_row_is_absent():
    once = Device({"loss": float, "actor": lambda step: 5.0 if step == 3 else None})
    outcome, _ = train(once, steps=30, log_every=10)
    assert [row.values.get("actor") for row in outcome.rows] == [None, 5.0, None, None]


def test_outputs_of_many_numbers_are_no_metrics():
    outcome, _ = train(Device({"loss": float, "samples": lambda step: np.zeros((2, 3))}), steps=1, log_every=1)
    assert list(outcome.rows[0].values) == ["loss"]


def test_losses_that_are_not_finite_are_told_once():
    outcome, shown = train(Device({"d_loss": lambda step: float("nan"), "g_loss": float}), steps=4, log_every=1)
    assert shown.count("warning") == 1
    assert "warning: not finite at step 1: d_loss; training continues" in shown
    assert outcome.steps == 4


def test_lines_show_step_values_and_speed():
    _, shown = train(Device({"d_loss": lambda step: 0.25, "g_loss": lambda step: 12345.678}), steps=20, log_every=10)
    lines = shown.splitlines()
    assert lines[0] == "step  1/20  d_loss 0.2500  g_loss 1.235e+04"
    assert lines[1].startswith("step 10/20  d_loss 0.2500  g_loss 1.235e+04  ")
    assert lines[1].endswith(" steps/s")


def interrupting(at: int):
    for number in range(1, 1000):
        if number == at:
            os.kill(os.getpid(), signal.SIGINT)
        yield {}


def test_ctrl_c_lets_the_step_finish_and_shows_it():
    outcome, _ = train(Device({"loss": float}), steps=100, log_every=10, batches=interrupting(at=7))
    assert (outcome.steps, outcome.interrupted) == (7, "SIGINT")
    assert outcome.rows[-1].step == 7
    assert outcome.state.rows == 1


class Sink:
    def __init__(self):
        self.rows = []

    def add(self, row):
        self.rows.append((row.step, list(row.values.items())))

    def close(self):
        pass


def test_a_run_that_is_interrupted_logs_what_one_without_a_break_logs():
    seldom = {"loss": float, "seldom": lambda step: -float(step) if step % 3 == 0 else None}
    whole, cut = Sink(), Sink()
    train(Device(seldom), steps=8, log_every=4, sinks=[whole])
    state, device = RunState(), Device(seldom)
    for at in (2, 2, 2, 3):  # interrupted in steps 2, 4, 6, and not any more
        outcome, _ = train(device, 8, 4, batches=interrupting(at), sinks=[cut], state=through(state))
        state = outcome.state
    assert cut.rows == whole.rows
    assert (state.made, state.rows) == (8, len(whole.rows))


def through(state):
    """Return a state that was written into a checkpoint and read back."""
    read = RunState()
    read.restore(state.to_plain(read_latest(state.latest, lambda value: np.asarray(value[1]))))
    return read


def test_a_second_ctrl_c_stops_at_once():
    def impatient():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        yield {}

    with pytest.raises(KeyboardInterrupt, match="pressed twice"):
        train(Device({"loss": float}), steps=100, log_every=10, batches=impatient())


def test_ctrl_c_is_given_back_after_training():
    before = signal.getsignal(signal.SIGINT)
    train(Device({"loss": float}), steps=1, log_every=1)
    assert signal.getsignal(signal.SIGINT) is before


class Exam:
    """Data of two batches, of 3 and 1 samples, and a step that returns a value for each of them."""

    def __init__(self, values, interrupt=False):
        self.values, self.resets, self.interrupt = iter(values), [], interrupt

    def reset(self, mode="eval"):
        self.resets.append(mode)

    def one_pass(self):
        yield {"rows": 3}
        if self.interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
        yield {"rows": 1}

    def rows(self, batch):
        return batch["rows"]

    def __call__(self, batch, mode="train"):
        return {"loss": next(self.values)}

    def numpy(self, value):
        return np.asarray(value)


def evaluation(exam):
    return Evaluation(step=exam, feed=exam, mode="eval", metrics=frozenset())


def figures(outcome):
    return [(row.step, row.values["eval/loss"]) for row in outcome.rows if "eval/loss" in row.values]


def test_an_evaluation_weighs_batches_by_their_samples_and_starts_its_mode_anew():
    exam = Exam([1.0, 5.0])
    assert evaluation(exam).run() == {"loss": 2.0}
    assert exam.resets == ["eval"]


def test_evaluations_come_when_they_are_due_and_at_the_end():
    exam = Exam(np.repeat(np.arange(1.0, 9.0), 2))
    outcome, _ = train(Device({"a": float}), 10, 100, evaluation=evaluation(exam), evaluate=Interval(steps=4))
    assert figures(outcome) == [(4, 1.0), (8, 2.0), (10, 3.0)]


def test_an_epoch_ends_with_an_evaluation_and_the_last_one_is_made_once():
    exam, device = Exam(np.repeat(np.arange(1.0, 9.0), 2)), Device({"a": float})
    outcome, _ = train(device, None, 100, length=3, epochs=2, evaluation=evaluation(exam), evaluate=Interval(epochs=1))
    assert figures(outcome) == [(3, 1.0), (6, 2.0)]
    assert (outcome.steps, device.ended) == (6, 2)


def test_the_best_is_saved_when_it_is_found_and_the_end_always():
    exam, saves = Exam(np.repeat([5.0, 3.0, 4.0, 3.0, 9.0], 2)), Saves()
    state = RunState(best=BestMetric(metric="loss", mode="min"))
    outcome, _ = train(
        Device({}), 10, 100, state=state, evaluation=evaluation(exam), evaluate=Interval(steps=2), saver=saves
    )
    assert saves.steps == [2, 4, 10]
    assert (outcome.state.best.step, outcome.state.best.value) == (4, 3.0)


def test_training_stops_when_nothing_gets_better_for_long_enough():
    exam = Exam(np.repeat([5.0, 3.0, 2.95, 3.5, 1.0], 2))
    state = RunState(stop=BestMetric(metric="loss", mode="min", min_delta=0.1))
    outcome, _ = train(
        Device({}), 100, 100, state=state, patience=2, evaluation=evaluation(exam), evaluate=Interval(steps=1)
    )
    assert (outcome.exhausted, outcome.steps, outcome.state.stop.step) == (True, 4, 2)


def test_a_run_without_evaluation_goes_by_its_logged_rows():
    state = RunState(stop=BestMetric(metric="loss", mode="min"))
    outcome, _ = train(Device({"loss": float}), 100, 10, state=state, patience=3)
    assert (outcome.exhausted, outcome.steps) == (True, 30)


def test_a_figure_that_no_evaluation_gives_is_refused():
    state = RunState(best=BestMetric(metric="accuracy", mode="max"))
    with pytest.raises(SpecError, match="no scalar 'accuracy'"):
        train(Device({}), 5, 5, state=state, evaluation=evaluation(Exam([1.0, 1.0])), evaluate=Interval(steps=1))


def test_an_interrupted_evaluation_is_made_again_when_the_run_goes_on():
    saves = Saves()
    cut, _ = train(Device({}), 9, 9, evaluation=evaluation(Exam([1.0], True)), evaluate=Interval(steps=4), saver=saves)
    assert (cut.interrupted, saves.steps, saves.due, figures(cut)) == ("SIGTERM", [4], [True], [])
    exam = Exam([2.0] * 6)
    outcome, _ = train(Device({}), 9, 9, state=cut.state, evaluation=evaluation(exam), evaluate=Interval(steps=4))
    assert figures(outcome) == [(4, 2.0), (8, 2.0), (9, 2.0)]


@pytest.mark.parametrize(("steps", "every"), [(None, Interval(epochs=1)), (9, Interval(steps=4))])
def test_a_planned_checkpoint_waits_for_an_evaluation_that_was_interrupted(steps, every):
    saves, others = Saves(), {"length": 4, "epochs": 2, "evaluate": every, "save": every}
    cut, _ = train(Device({}), steps, 9, evaluation=evaluation(Exam([1.0], True)), saver=saves, **others)
    feed = Batches(length=4)
    feed.epoch, feed.index = (1, 0) if steps is None else (0, 4)
    train(
        Device({}), steps, 9, state=cut.state, feed=feed, evaluation=evaluation(Exam([2.0] * 6)), saver=saves, **others
    )
    planned = [(step, False) for step in (9,) if step == steps]
    assert list(zip(saves.steps, saves.planned, strict=True)) == [(4, False), (4, True), (8, True), *planned]
    assert saves.due == [True, *[False] * (len(saves.due) - 1)]


def test_what_was_trained_is_saved_where_the_data_fails():
    def failing():
        yield from [{}] * 3
        raise problem("GS226", "the source raised")

    saves = Saves()
    with pytest.raises(SpecError, match="the source raised"):
        train(Device({}), 9, 9, batches=failing(), saver=saves)
    assert saves.steps == [3]


def test_checkpoints_are_written_as_often_as_asked():
    saves = Saves()
    train(Device({}), 7, 9, saver=saves, save=Interval(steps=3))
    assert (saves.steps, saves.planned) == ([3, 6, 7], [True, True, False])


def test_a_last_row_that_was_not_logged_before_the_end_is_saved_with_the_run():
    saves, state = Saves(), RunState(made=7, latest={"loss": 0.5})  # interrupted after the last of some epochs
    feed = Batches(length=7)
    feed.epoch = 1
    outcome, _ = train(Device({}), None, 10, state=state, feed=feed, epochs=1, saver=saves)
    assert ([row.step for row in outcome.rows], saves.steps, outcome.state.rows) == ([7], [7], 1)


def test_a_run_that_is_complete_does_nothing_when_it_goes_on():
    saves, device = Saves(), Device({"loss": float})
    outcome, _ = train(device, 7, 1, state=RunState(made=7), saver=saves)
    assert (outcome.steps, saves.steps, device.steps, outcome.rows) == (0, [], 0, ())

"""The training loop: what it logs, when it reads from the device, and how it stops."""

from __future__ import annotations

import io
import os
import signal
from itertools import repeat

import numpy as np
import pytest

from runtime.loop import Loop
from runtime.progress import Plain


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


def train(device: Device, steps: int, log_every: int, batches=None):
    shown = io.StringIO()
    loop = Loop(
        step=device,
        batches=iter(repeat({})) if batches is None else batches,
        steps=steps,
        log_every=log_every,
        display=Plain(shown, steps),
    )
    return loop.run(), shown.getvalue()


def test_the_first_the_last_and_every_few_steps_are_logged():
    outcome, _ = train(Device({"loss": float}), steps=23, log_every=10)
    assert [(row.step, row.values["loss"]) for row in outcome.rows] == [(1, 1), (10, 10), (20, 20), (23, 23)]
    assert (outcome.steps, outcome.interrupted) == (23, False)


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
    assert "warning: not finite at step 1: d_loss; training goes on" in shown
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


def test_ctrl_c_lets_the_step_finish_and_logs_it():
    outcome, _ = train(Device({"loss": float}), steps=100, log_every=10, batches=interrupting(at=7))
    assert (outcome.steps, outcome.interrupted) == (7, True)
    assert outcome.rows[-1].step == 7


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

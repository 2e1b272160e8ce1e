"""Every active set is traced once: other sizes of a batch, and numbers that change, trace nothing anew."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec.loading import load
from runtime import Step, build
from runtime.state import State
from tests.conformance import traced

SPEC = """
graphspec: 1
name: traced
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  net:
    layers: [{linear: 4}, {dropout: 0.2}, tanh, {linear: 4}]
    optimizer: {name: adam, lr: LR}
    groups: [{match: bias, lr_scale: {schedule: linear, from: 2, to: 1, over: 20}}]
    regularizer: {l2: {schedule: warmup, to: 0.1, over: 20}}
    constraint: {max_norm: {schedule: linear, from: 9, to: 8, over: 20}}
  other: {like: net, init: fresh, optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: net, inputs: x}
  counted: {call: "tests.conformance.traced:count", inputs: out}
  noise: {random: normal, like: x}
  far: {forward: other, inputs: noise}
  beta: {schedule: warmup, from: 1.0, to: 2.0, over: 5}
  aim: {call: mul, inputs: [y, beta]}
  loss: {loss: mse, inputs: [counted, aim], weight: {schedule: linear, from: 1, to: 0.5, over: 20}}
  far_loss: {loss: mse, inputs: [far, y]}
  step: {update: net, loss: loss, clip: {norm: {schedule: cosine, from: 100, to: 50, over: 10}}}
  step_other: {update: other, loss: far_loss, every: 2}
  level: {metric: mean, inputs: counted}
"""
RATES = {
    "constant": "0.1",
    "cosine": "{schedule: cosine, from: 0.1, over: 10}",
    "by epochs": "{schedule: linear, from: 0.1, over: 4, clock: epochs}",
    "in parts": "{schedule: join, parts: [{schedule: warmup, to: 0.1, over: 3}, {schedule: constant, value: 0.1}]}",
}
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 64)
ACTIVE_SETS = 3
"""Training with one update, training with both, evaluation."""


@cache
def begun(rate: str) -> tuple[Step, State, int]:
    """Build a step; return it with its first state, and how often it was traced for that."""
    traced.COUNT[0] = 0
    plan = compile_step(load(SPEC.replace("LR", RATES[rate])), "tensorflow", pace=Pace(epoch=1, batch=4))
    step = build(plan, device="cpu", allow=["tests"])
    return step, step.state(), traced.COUNT[0]


@pytest.fixture(params=[pytest.param(rate, marks=pytest.mark.xdist_group(f"traced {rate}")) for rate in RATES])
def step(request: pytest.FixtureRequest) -> Step:
    """Return a step whose rate stays, or changes, as it was built."""
    step, first, traced.COUNT[0] = begun(request.param)
    step.restore(first)
    return step


def take(step: Step, size: int, mode: str = "train") -> float:
    """Take a step; return how far it moved a weight."""
    before = step.state().arrays["models.net.0.weight"]
    step({name: np.ones((size, 4), "float32") for name in ("x", "y")}, mode)
    return float(np.abs(step.state().arrays["models.net.0.weight"] - before).max())


@pytest.mark.sample(2)
def test_each_active_set_is_traced_once_and_before_the_first_step(step: Step) -> None:
    assert traced.COUNT == [ACTIVE_SETS]
    for size in (*SIZES, *SIZES):
        take(step, size)
        take(step, size, "eval")
        step.end_epoch()
    assert traced.COUNT == [ACTIVE_SETS]


def test_a_rate_that_changes_does_change_the_steps(step: Step, request: pytest.FixtureRequest) -> None:
    moved = []
    for _ in range(12):
        moved.append(take(step, 4))
        step.end_epoch()
    rate = request.node.callspec.params["step"]
    assert {"constant": moved[-1] > 0.0, "in parts": moved[0] == 0.0}.get(rate, moved[-1] == 0.0)
    assert max(moved) > 0.03
    assert traced.COUNT == [ACTIVE_SETS]

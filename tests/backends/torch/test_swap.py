"""An average that stands in for its model in evaluation, against averages and forwards computed by hand."""

from __future__ import annotations

import copy

import pytest
import torch

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime import build

SPEC = """
graphspec: 1
name: swap
inputs: {{x: {{shape: [batch, 3]}}, y: {{shape: [batch, 2]}}}}
models:
  net: {{layers: [{{linear: 4}}, batch_norm, tanh, {{linear: 2}}], optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{loss: mse, inputs: [out, y]}}
  step: {{update: net, loss: loss, {update}}}
  average: {{ema: net, decay: 0.8, buffers: {buffers}, {clock}, use: {{eval: {use}}}}}
outputs: [loss, out]
"""


def make(clock="every: 1", use="swap", update="every: 1", buffers="copy"):
    spec = load(SPEC.format(clock=clock, use=use, update=update, buffers=buffers))
    return build(compile_step(spec), seed=1, dtype="float64")


def batch(number):
    drawn = torch.Generator().manual_seed(number)
    return {"x": torch.randn(8, 3, generator=drawn).double(), "y": torch.randn(8, 2, generator=drawn).double()}


def evaluated(model, x):
    return copy.deepcopy(model).eval()(x)


@torch.no_grad()
def follow(average, net, buffers):
    for old, new in zip(average.parameters(), net.parameters(), strict=True):
        old.copy_(0.8 * old + 0.2 * new)
    for old, new in zip(average.buffers(), net.buffers(), strict=True):
        is_mean = buffers == "average" and old.is_floating_point()
        old.copy_(0.8 * old + 0.2 * new if is_mean else new)


def assert_evaluates(step, model):
    x = batch(99)["x"]
    torch.testing.assert_close(step({"x": x, "y": batch(99)["y"]}, mode="eval")["out"], evaluated(model, x))


@pytest.mark.parametrize("buffers", ["copy", "average"])
def test_evaluation_reads_the_average_once_there_is_one(buffers):
    step = make("start: 3 steps", buffers=buffers)
    average = copy.deepcopy(step.models["net"])
    for number in range(1, 6):
        step(batch(number))
        net = step.models["net"]
        if number == 3:  # it begins as a copy
            average = copy.deepcopy(net)
        elif number > 3:
            follow(average, net, buffers)
        assert_evaluates(step, average if number >= 3 else net)


def test_before_training_evaluation_reads_the_model():
    step = make()
    assert_evaluates(step, step.models["net"])


def test_the_average_of_an_update_that_skips_steps_stands_in_from_its_first_update():
    step = make(update="every: 2")
    average = copy.deepcopy(step.models["net"])
    for number in range(1, 4):
        step(batch(number))
        if number == 2:
            follow(average, step.models["net"], "copy")
        assert_evaluates(step, average if number >= 2 else step.models["net"])


def test_training_goes_on_with_the_model_and_separate_averages_stay_apart():
    swapped, separate = make(), make(use="separate")
    for number in range(1, 4):
        assert torch.equal(swapped(batch(number))["out"], separate(batch(number))["out"])
        swapped(batch(50), mode="eval")
        assert_evaluates(separate, separate.models["net"])


def test_statistics_that_never_move_are_no_average_to_evaluate():
    with pytest.raises(SpecError, match="'average' stands in for 'net' in evaluation, but its buffers keep"):
        make(buffers="ignore")

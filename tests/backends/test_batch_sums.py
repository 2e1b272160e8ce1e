"""`call: sum` over the batch is a sum, over windows as over micro-batches: the step is that of one large batch."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
SPEC = """
graphspec: 1
name: sums
inputs: {x: {shape: [batch]}}
models: {net: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 1.0}}}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w]}
  total: {call: sum, inputs: product}
  loss: {call: LOSS}
  step: {update: net, loss: loss, MORE}
"""
X = np.array([1.0, 2.0, 4.0, 8.0])


def written(loss: str = "mul, inputs: [total, 0.5]", more: str = "every: 1") -> str:
    return SPEC.replace("LOSS", loss).replace("MORE", more).lstrip()


@BACKENDS
@pytest.mark.parametrize("loss", ["mul, inputs: [total, 0.5]", "neg, inputs: total", "sum, inputs: product"])
def test_windows_and_micro_batches_of_sums_are_one_large_batch(backend, loss):
    moved = {"mul": 1 - 7.5, "neg": 1 + 15.0, "sum": 1 - 15.0}[loss[:3]]
    whole = build_step(written(loss), backend)
    whole({"x": X})
    window = build_step(written(loss, "accumulate: 2"), backend)
    window({"x": X[:3]})
    window({"x": X[3:]})
    parts = build_step(written(loss).replace("ops:", "micro_batches: 2\nops:"), backend)
    parts({"x": X})
    found = [float(weights(step)["net.value"]) for step in (whole, window, parts)]
    assert found == pytest.approx([moved] * 3)


def test_a_sum_and_a_mean_in_one_window_have_no_common_count():
    ops = "mean_loss: {loss: mse, inputs: [product, 0.0]}\n  loss: {call: add, inputs: [total, mean_loss]}"
    with pytest.raises(SpecError, match=r"E-COUNTS.*'total', a sum, and 'mean_loss', a mean"):
        compile_step(load(written(more="accumulate: 2").replace("loss: {call: mul, inputs: [total, 0.5]}", ops)))


@pytest.mark.parametrize("more", ["accumulate: 2", "every: 1}\nmicro_batches: 2\nvars: {"])
def test_a_sum_inside_another_op_is_warned_of(more):
    losses = {"log, inputs: total": 1, "sum, inputs: product": 0, "neg, inputs: total": 0}
    plans = {loss: compile_step(load(written(loss, more))) for loss in losses}
    assert {loss: sum(each.code == "W-COUNTS" for each in plan.warnings) for loss, plan in plans.items()} == losses

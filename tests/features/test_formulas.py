"""Expressions in steps: the numbers of their ops written out, one line in plan and code, and a loop by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import build, emit
from tests.features.steps import weights

HEAD = """graphspec: 1
name: formulas
vars: {alpha: 0.25}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 2}], optimizer: {name: adam, lr: 0.01}}
  scale: {parameter: {shape: [], init: 0.5}, optimizer: {name: sgd, lr: 0.1}}
state: {level: {shape: [], init: 0.5}}
ops:
  told: {forward: net, inputs: x}
  log_scale: {forward: scale}
"""
WRITTEN = """
  halves: {expr: "split(told, sections=2)", outputs: [middle, spread]}
  goal: {expr: "y + ${alpha} * (1 - y) * (middle - stop(spread))"}
  log_p: {expr: "-0.5 * square(middle) - log(1.5 + square(spread)) - log(2 * pi) / 2"}
  penalty: {expr: "mse(spread, 0.0)", every: 2}
  kept: {assign: level, value: mean_goal}
  mean_goal: {expr: "0.9 * level + 0.1 * stop(mean(goal))"}
  step_net: {update: net, loss: "mse(middle, goal) + 0.1 * mean(exp(log_scale) * log_p) + penalty"}
  step_scale: {update: scale, loss: "-mean(exp(log_scale) * stop(log_p + ${alpha}))"}
outputs: [step_net.loss, step_scale.loss, mean_goal]
"""
OUT = """
  halves: {call: split, inputs: told, args: {sections: 2}, outputs: [middle, spread]}
  rest: {call: sub, inputs: [1, y]}
  fixed: {call: stop, inputs: spread}
  apart: {call: sub, inputs: [middle, fixed]}
  far: {call: mul, inputs: [0.25, rest, apart]}
  goal: {call: add, inputs: [y, far]}
  squared: {call: square, inputs: middle}
  bell: {call: mul, inputs: [-0.5, squared]}
  spread_2: {call: square, inputs: spread}
  wide: {call: add, inputs: [1.5, spread_2]}
  bend: {call: log, inputs: wide}
  bent: {call: sub, inputs: [bell, bend]}
  log_p: {call: sub, inputs: [bent, 0.9189385332046727]}
  penalty: {loss: mse, inputs: [spread, 0.0], every: 2}
  kept: {assign: level, value: mean_goal}
  old: {call: mul, inputs: [0.9, level]}
  average: {call: mean, inputs: goal}
  fixed_average: {call: stop, inputs: average}
  new: {call: mul, inputs: [0.1, fixed_average]}
  mean_goal: {call: add, inputs: [old, new]}
  fit: {loss: mse, inputs: [middle, goal]}
  price: {call: exp, inputs: log_scale}
  priced: {call: mul, inputs: [price, log_p]}
  mean_priced: {call: mean, inputs: priced}
  tenth: {call: mul, inputs: [0.1, mean_priced]}
  loss_net: {call: add, inputs: [fit, tenth, penalty]}
  step_net: {update: net, loss: loss_net}
  price_2: {call: exp, inputs: log_scale}
  excess: {call: add, inputs: [log_p, 0.25]}
  fixed_excess: {call: stop, inputs: excess}
  priced_2: {call: mul, inputs: [price_2, fixed_excess]}
  mean_priced_2: {call: mean, inputs: priced_2}
  loss_scale: {call: neg, inputs: mean_priced_2}
  step_scale: {update: scale, loss: loss_scale}
outputs: [loss_net, loss_scale, mean_goal]
"""


def make_batches():
    chosen = np.random.default_rng(3)
    return [
        {"x": chosen.normal(size=(6, 4)).astype("float32"), "y": chosen.normal(size=(6, 1)).astype("float32")}
        for _ in range(4)
    ]


def train(text, overrides, backend):
    """Return what four steps return, and the weights after them."""
    step = build(compile_step(load(HEAD + text, overrides), backend=backend), device="cpu")
    returned = [[step.numpy(value) for value in step(batch).values()] for batch in make_batches()]
    return returned, dict(step.state().arrays)


STATED = """
  first: {forward: net, inputs: x}
  fresh: {expr: "level + stop(mean(first))"}
  kept: {assign: level, value: fresh}
  step: {update: net, loss: "mean(first**2)", after: kept}
  later: {forward: net, inputs: x, after: step}
  total: {expr: "2 * level + mean(later)", after: []}
outputs: [total]
"""


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_part_that_reads_a_state_runs_before_that_is_written(backend):
    whole = HEAD.replace("  told: {forward: net, inputs: x}\n  log_scale: {forward: scale}\n", "")
    source = emit(compile_step(load(whole + STATED), backend=backend))
    lines = [line.strip() for line in source.splitlines()]
    assert next(line for line in lines if line.startswith("total =")).startswith("total = total_1 + ")


HAND = """graphspec: 1
name: hand
inputs: {x: {shape: [batch, 4]}, reward: {shape: [batch, 1]}, done: {shape: [batch, 1]}}
models:
  one: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  two: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  q_1: {forward: one, inputs: x}
  q_2: {forward: two, inputs: x}
  least: {expr: "minimum(q_1, q_2)"}
  goal: {expr: "reward + 0.9 * (1 - done) * stop(where(least > 0, least, 0.1 * least))"}
  far: {expr: "(abs(q_1 - goal) > 0.5) & ~(done == 1)"}
  step_1: {update: one, loss: "mse(q_1, goal) + 0.01 * mean(q_1**2)"}
  near: {expr: "mean(x[:, 1:3] @ permute(x, dims=[1, 0])[1:3])"}
  step_2: {update: two, loss: "mean(where(far, q_2 - goal, 0.0)**2) / 2 + near * mean(q_2)"}
outputs: []
"""


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_loop_by_hand_gives_the_same_weights(backend):
    step = build(compile_step(load(HAND), backend=backend), device="cpu")
    start = weights(step)
    w = {name: torch.tensor(value.astype("float64"), requires_grad=True) for name, value in start.items()}
    chosen = np.random.default_rng(4)
    for _ in range(3):
        batch = {
            "x": chosen.normal(size=(8, 4)).astype("float32"),
            "reward": chosen.normal(size=(8, 1)).astype("float32"),
            "done": chosen.integers(0, 2, size=(8, 1)).astype("float32"),
        }
        step(batch)
        x, reward, done = (torch.tensor(batch[name].astype("float64")) for name in ("x", "reward", "done"))
        q_1, q_2 = (x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"] for name in ("one", "two"))
        least = torch.minimum(q_1, q_2).detach()
        goal = reward + 0.9 * (1 - done) * torch.where(least > 0, least, 0.1 * least)
        far = ((q_1 - goal).abs() > 0.5) & ~(done == 1)
        loss_1 = (q_1 - goal).square().mean() + 0.01 * q_1.square().mean()
        gap = torch.where(far, q_2 - goal, torch.zeros_like(q_2))
        loss_2 = gap.square().mean() / 2 + (x[:, 1:3] @ x.T[1:3]).mean() * q_2.mean()
        for loss, name in ((loss_1, "one"), (loss_2, "two")):
            mine = [w[f"{name}.0.weight"], w[f"{name}.0.bias"]]
            for each, slope in zip(mine, torch.autograd.grad(loss, mine, retain_graph=True), strict=True):
                w[next(key for key in w if w[key] is each)] = (each - 0.1 * slope).detach().requires_grad_()
    for name, value in weights(step).items():
        np.testing.assert_allclose(value.reshape(w[name].shape), w[name].detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("micro_batches=2",),
        ("ops.step_net.accumulate=2", "precision={loss_scale: 8}"),
    ],
    ids=["plain", "micro-batches", "windows"],
)
def test_the_numbers_are_those_of_the_ops_written_out(backend, overrides):
    found, meant = (train(text, overrides, backend) for text in (WRITTEN, OUT))
    for one, other in zip(found[0], meant[0], strict=True):
        for each, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(each, wanted)
    assert found[1].keys() == meant[1].keys()
    for name, each in found[1].items():
        np.testing.assert_array_equal(each, meant[1][name], err_msg=name)

"""`micro_batches: k` splits a step's batch into parts whose gradients make one update; parts are not steps."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from graphspec import SpecError
from runtime import Step
from runtime.state import State
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("A16")

LINE = """
graphspec: 1
name: parted
micro_batches: 2
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, y]}
  size: {loss: l1, inputs: [out, 0.0], reduction: sum, weight: 0.5}
  loss: {call: add, inputs: [fit, size]}
  step: {update: net, loss: loss}
outputs: [loss, out]
"""
BATCH = {"x": np.array([[1.0], [2.0], [3.0]]), "y": np.zeros((3, 1))}
NETS = """
graphspec: 1
name: nets
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 3]}, scale: {shape: [3]}}
models:
  teacher: {layers: [{linear: 3}]}
  critic: {layers: [{linear: 5}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.01}}
  net: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: adam, lr: 0.01}}
  slow: {like: net}
ops:
  noise: {random: normal, shape: [batch, 3]}
  aim: {forward: teacher, inputs: x}
  out: {forward: net, inputs: x}
  moved: {call: add, inputs: [out, noise]}
  score: {forward: critic, inputs: moved}
  total: {call: sum, inputs: score}
  slope: {gradient: total, wrt: [moved]}
  length: {call: norm, inputs: slope, args: {axis: 1}}
  penalty: {loss: mse, inputs: [length, 1.0]}
  worth: {loss: wasserstein, inputs: score}
  c_loss: {call: sub, inputs: [penalty, worth]}
  step_c: {update: critic, loss: c_loss, accumulate: 2}
  scaled: {call: mul, inputs: [out, scale]}
  fit: {loss: huber, inputs: [scaled, y]}
  told: {loss: mse, inputs: [out, aim], reduction: sum}
  judged: {forward: critic, inputs: out, after: step_c}
  liked: {loss: bce_with_logits, inputs: [judged, 1.0]}
  rare: {loss: mse, inputs: [out, 0.5], every: 2}
  rarer: {loss: l1, inputs: [out, 0.5], every: 2}
  rares: {call: add, inputs: [rare, rarer]}
  loss: {call: add, inputs: [fit, told, liked, rares]}
  step: {update: net, loss: loss, clip: {norm: 0.5}}
  follow: {ema: net, into: slow, decay: 0.9}
  right: {metric: mean, inputs: out}
outputs: [loss, c_loss, slope, out]
"""


def draw(rows: int, number: int) -> dict[str, np.ndarray]:
    """Return a batch of normal numbers."""
    noise = np.random.default_rng(number)
    shapes = {"x": (rows, 4), "y": (rows, 3), "scale": (3,)}
    return {name: noise.normal(size=shape) for name, shape in shapes.items()}


@lru_cache(maxsize=4)
def begun(backend: str, count: int) -> tuple[Step, State]:
    """Build a step; return it with its first state."""
    step = build_step(NETS, backend, [f"micro_batches={count}"])
    return step, step.state()


def train(backend: str, count: int, rows: int) -> dict[str, np.ndarray]:
    """Return what three steps returned and left behind, in so many micro-batches."""
    step, first = begun(backend, count)
    step.restore(first)
    found: dict[str, np.ndarray] = {}
    for number in range(3):
        outputs = step(draw(rows, number))
        found |= {f"{name} {number}": np.asarray(value) for name, value in outputs.items()}
    return {**found, **weights(step)}


def test_parts_of_unequal_size_are_one_update(backend: str) -> None:
    step = build_step(LINE, backend)
    set_weights(step, {"net.0.weight": [[1.0]]})
    outputs = step(BATCH)
    # (1 + 4 + 9) / 3 + (1 + 2 + 3) / 2 in parts of two rows and of one; its slope 28 / 3 + 3
    assert np.asarray(outputs["loss"]) == pytest.approx(14 / 3 + 3, abs=1e-14)
    assert np.asarray(outputs["out"]).tolist() == [[1.0], [2.0], [3.0]]
    assert weights(step)["net.0.weight"].item() == pytest.approx(1 - 0.1 * (28 / 3 + 3), abs=1e-14)


@pytest.mark.sample(3)
@pytest.mark.xdist_group("whole batch")  # one worker, so that the step of the whole batch is built once
@pytest.mark.parametrize(("count", "rows"), [(2, 8), (3, 7), (5, 5)])
def test_the_numbers_are_those_of_the_whole_batch(backend: str, count: int, rows: int) -> None:
    whole, parted = train(backend, 1, rows), train(backend, count, rows)
    assert parted.keys() == whole.keys()
    assert max(np.abs(parted[name] - whole[name]).max() for name in whole) < 1e-12


def test_a_batch_with_fewer_rows_than_parts_is_refused(backend: str) -> None:
    step = build_step(LINE, backend)
    with pytest.raises(Exception, match="cannot be split into 2 micro-batches"):
        step({name: value[:1] for name, value in BATCH.items()})


def test_without_a_batch_there_is_nothing_to_split(backend: str) -> None:
    with pytest.raises(SpecError, match="E-MICRO"):
        build_step(LINE.replace("[batch, 1]", "[3, 1]"), backend)


def test_other_modes_are_not_split(backend: str) -> None:
    step = build_step(LINE, backend)
    assert np.asarray(step({name: value[:1] for name, value in BATCH.items()}, mode="eval")["out"]).shape == (1, 1)

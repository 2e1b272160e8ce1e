"""Parts inside parts: clocks of the outer one, and what an average in the inner one follows; equal to loops by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.features.steps import build_step, weights
from tests.features.test_repeat_and_choose import descend, draw, miss, tensors

LATE = """
graphspec: 1
name: a clock of iterations holds in the alternatives and iterations in them
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  outer:
    repeat: 2
    CLOCK
    ops:
      inner:
        repeat: 3
        ops:
          out: {forward: net, inputs: x}
          fit: {loss: mse, inputs: [out, y]}
          step: {update: net, loss: fit}
"""
FOLLOWED = """
graphspec: 1
name: an average in an alternative follows the updates of its iteration
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  slow: {like: net}
ops:
  outer:
    repeat: 2
    ops:
      out: {forward: net, inputs: x}
      fit: {loss: mse, inputs: [out, y]}
      step: {update: net, loss: fit}
      inner:
        sometimes: 0.5
        after: [step]
        ops:
          again: {forward: net, inputs: x}
          fit: {loss: mse, inputs: [again, y]}
          step: {update: net, loss: fit, every: 2}
          follow: {ema: net, into: slow, decay: 0.75}
"""
RESTING = """
graphspec: 1
name: an average in an iteration without an update does not take place
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  slow: {like: net}
ops:
  outer:
    repeat: 2
    ops:
      inner:
        sometimes: 0.5
        ops:
          out: {forward: net, inputs: x}
          fit: {loss: mse, inputs: [out, y]}
          step: {update: net, loss: fit}
      follow: {ema: net, into: slow, decay: 0.75}
"""
LR = 0.1


def batches(count: int) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(3)
    return [{"x": generator.normal(size=(5, 2)), "y": generator.normal(size=(5, 1))} for _ in range(count)]


def fit(held: dict[str, torch.Tensor], batch: dict[str, np.ndarray]) -> None:
    descend(held, "net", miss, *map(torch.tensor, (batch["x"], batch["y"])), lr=LR)


def follow(held: dict[str, torch.Tensor]) -> None:
    for name in ("0.weight", "0.bias"):
        held[f"slow.{name}"] = 0.75 * held[f"slow.{name}"] + 0.25 * held[f"net.{name}"]


@pytest.mark.parametrize(
    ("clock", "fires"),
    [
        ("start: 3", lambda step: step >= 3),
        ("until: 2", lambda step: step <= 2),
        ("every: 2", lambda step: step % 2 == 0),
    ],
)
def test_the_clock_of_a_part_holds_for_the_writes_of_the_parts_in_it(clock, fires, backend: str) -> None:
    step = build_step(LATE.replace("CLOCK", clock), backend)
    held = tensors(step)
    for number, batch in enumerate(batches(5), start=1):
        step(batch)
        for _ in range(6 if fires(number) else 0):
            fit(held, batch)
        for name, value in weights(step).items():
            np.testing.assert_allclose(value, held[name], rtol=1e-9, err_msg=f"step {number}: {name}")


def test_an_average_in_an_alternative_takes_place_wherever_its_iteration_writes_its_source(backend: str) -> None:
    step = build_step(FOLLOWED, backend)
    held, opened, counts = tensors(step), set[tuple[bool, bool]](), {1: 0, 2: 0}
    for number, batch in enumerate(batches(16), start=1):
        step(batch)
        for iteration in (1, 2):
            fit(held, batch)
            is_open = draw(number, f"outer.{iteration}.inner") < 0.5
            counts[iteration] += is_open
            is_due = counts[iteration] % 2 == 0  # `every` counts the steps in which the part runs
            opened.add((is_open, is_due))
            if is_open and is_due:
                fit(held, batch)
            if is_open:
                follow(held)
        for name, value in weights(step).items():
            np.testing.assert_allclose(value, held[name], rtol=1e-9, err_msg=f"step {number}: {name}")
    assert len(opened) == 4


def test_an_average_in_an_iteration_does_not_follow_the_updates_of_the_one_before(backend: str) -> None:
    step = build_step(RESTING, backend)
    held, taken = tensors(step), set[tuple[bool, bool]]()
    for number, batch in enumerate(batches(16), start=1):
        step(batch)
        is_open = [draw(number, f"outer.{iteration}.inner") < 0.5 for iteration in (1, 2)]
        taken.add((is_open[0], is_open[1]))
        for one in is_open:
            if one:
                fit(held, batch)
                follow(held)
        for name, value in weights(step).items():
            np.testing.assert_allclose(value, held[name], rtol=1e-9, err_msg=f"step {number}: {name}")
    assert len(taken) == 4

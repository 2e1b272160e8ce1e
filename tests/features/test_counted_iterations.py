"""Averages and copies in iterations count these: formulas, intervals and beginnings, against loops by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import yaml

from graphspec import SpecError, dump, load
from tests.features.steps import build_step, weights
from tests.features.test_repeat_and_choose import descend, draw, miss, tensors

STEPS = 5
TEXT = """
graphspec: 1
name: averages of iterations
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  slow: {like: net, init: fresh}
ops:
  outer:
    repeat: 3
    ops:
      out: {forward: net, inputs: x}
      fit: {loss: mse, inputs: [out, y]}
      step: {update: net, loss: fit}
      follow: FOLLOW
"""
HALVES = 0.5 ** (1 / 3)
Kept = Callable[[int], float | None]
"""What is kept of the old average by the number of an iteration that writes, from 1; None where nothing happens."""


def tf(most: float, n: int) -> float:
    return min(most, (1 + n) / (10 + n))


def power(gamma: float, n: int) -> float:
    return (1 - 1 / n) ** (gamma + 1)


CASES: dict[str, tuple[str, Kept]] = {
    "formula": ("{ema: net, into: slow, decay: {kind: tf, max: 0.5}}", lambda n: tf(0.5, n)),
    "interval": ("{ema: net, into: slow, decay: 0.75, every: 2}", lambda n: None if n % 2 else 0.75),
    "copy": ("{copy: net, into: slow, every: 4}", lambda n: None if n % 4 else 0.0),
    "half-life": (
        '{ema: net, into: slow, half_life: "3 updates", every: 2}',
        lambda n: None if n % 2 else HALVES**2,
    ),
    "first update": ("{ema: net, into: slow, decay: 0.75, init: first_update}", lambda n: 0.75 if n > 1 else 0.0),
    "first update, interval": (
        "{ema: net, into: slow, decay: 0.75, init: first_update, every: 2}",
        lambda n: None if n % 2 else 0.75 if n > 2 else 0.0,
    ),
    # e = 0.25 (w_n + 0.75 w_(n-1) + ...), read as e / (1 - 0.75^n)
    "zeros": (
        "{ema: net, into: slow, decay: 0.75, init: zeros}",
        lambda n: 0.75 * (1 - 0.75 ** (n - 1)) / (1 - 0.75**n),
    ),
    "power, interval": (
        "{ema: net, into: slow, decay: {kind: power, gamma: 1.5}, every: 2}",
        lambda n: None if n % 2 else power(1.5, n) * power(1.5, n - 1),
    ),
    "uniform, interval": (
        "{ema: net, into: slow, decay: {kind: uniform}, every: 2}",
        lambda n: None if n % 2 else 1 - 1 / (n // 2),
    ),
    # from the first iteration of step 3 on: the first that counts is due
    "start": (
        "{ema: net, into: slow, decay: 0.75, start: 3, every: 2}",
        lambda n: None if n < 7 or n % 2 == 0 else 0.0 if n == 7 else 0.75,
    ),
    "copy before": (
        "{ema: net, into: slow, decay: {kind: tf, max: 0.5}, start: {at: 3, before: copy}}",
        lambda n: 0.0 if n <= 7 else tf(0.5, n - 6),
    ),
}


def batches(count: int) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(3)
    return [{"x": generator.normal(size=(5, 2)), "y": generator.normal(size=(5, 1))} for _ in range(count)]


def take(held: dict[str, torch.Tensor], batch: dict[str, np.ndarray], kept: float | None) -> None:
    """Take one iteration: an update, and what is kept of the average."""
    descend(held, "net", miss, *map(torch.tensor, (batch["x"], batch["y"])), lr=0.1)
    for name in ("0.weight", "0.bias") if kept is not None else ():
        held[f"slow.{name}"] = kept * held[f"slow.{name}"] + (1 - kept) * held[f"net.{name}"]


def agree(step: object, held: dict[str, torch.Tensor], number: int) -> None:
    for name, value in weights(step).items():
        np.testing.assert_allclose(value, held[name], rtol=1e-9, atol=1e-12, err_msg=f"step {number}: {name}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_the_count_of_an_average_goes_on_from_iteration_to_iteration(case: str, backend: str) -> None:
    written, kept = CASES[case]
    step, again = (build_step(TEXT.replace("FOLLOW", written), backend) for _ in range(2))
    held, count = tensors(step), 0
    for number, batch in enumerate(batches(STEPS), start=1):
        if number == 3:  # a run that is resumed goes on with the same count
            again.restore(step.state())
            step = again
        step(batch)
        for _ in range(3):
            count += 1
            take(held, batch, kept(count))
        agree(step, held, number)


def test_iterations_count_in_their_order_however_they_are_listed(backend: str) -> None:
    written, kept = CASES["copy"]
    document = yaml.safe_load(dump(load(TEXT.replace("FOLLOW", written))))
    backwards = {**document, "ops": dict(reversed(document["ops"].items()))}
    step = build_step(json.dumps(backwards) + "\n", backend)
    held, count = tensors(step), 0
    for number, batch in enumerate(batches(STEPS), start=1):
        step(batch)
        for _ in range(3):
            count += 1
            take(held, batch, kept(count))
        agree(step, held, number)


NESTED = """
graphspec: 1
name: iterations of iterations
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
  slow: {like: net, init: fresh}
ops:
  outer:
    repeat: 2
    ops:
      more:
        sometimes: 0.5
        ops:
          again:
            repeat: 2
            ops:
              out: {forward: net, inputs: x}
              fit: {loss: mse, inputs: [out, y]}
              step: {update: net, loss: fit}
              follow: {ema: net, into: slow, decay: {kind: tf, max: 0.5}, every: EVERY}
      out: {forward: net, inputs: x, after: more}
      fit: {loss: mse, inputs: [out, y]}
      step: {update: net, loss: fit}
"""


@pytest.mark.parametrize("every", [1, 2])
def test_iterations_of_iterations_have_one_count_and_those_that_do_not_write_leave_it(every: int, backend: str) -> None:
    step = build_step(NESTED.replace("EVERY", str(every)), backend)
    held, count, opened = tensors(step), 0, set[bool]()
    for number, batch in enumerate(batches(12), start=1):
        step(batch)
        for iteration in (1, 2):
            is_open = draw(number, f"outer.{iteration}.more") < 0.5
            opened.add(is_open)
            for _ in range(2 if is_open else 0):
                count += 1
                take(held, batch, tf(0.5, count) if count % every == 0 else None)
            take(held, batch, None)
        agree(step, held, number)
    assert opened == {True, False}


def test_what_a_mean_of_all_writes_keeps_is_the_mean(backend: str) -> None:
    """Independent of any formula: an average of the kind `uniform` is the mean of the weights of all iterations."""
    step = build_step(TEXT.replace("FOLLOW", "{ema: net, into: slow, decay: {kind: uniform}}"), backend)
    held, seen = tensors(step), list[np.ndarray]()
    for batch in batches(3):
        step(batch)
        for _ in range(3):
            take(held, batch, None)
            seen.append(held["net.0.weight"].numpy())
    assert math.isclose(len(seen), 9)
    np.testing.assert_allclose(weights(step)["slow.0.weight"], np.mean(seen, axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ("{ema: net, into: slow, decay: {kind: tf, max: 0.5}}", "decay"),
        ("{ema: net, into: slow, decay: 0.5, init: zeros}", "init"),
        ("{copy: net, into: slow, every: 2}", "every"),
    ],
)
def test_what_counts_iterations_that_may_be_skipped_is_refused(written: str, field: str) -> None:
    text = TEXT.replace("FOLLOW", written) + "precision: {loss_scale: dynamic}\n"
    with pytest.raises(SpecError, match="counts iterations, some of which may be skipped") as found:
        load(text)
    (problem,) = {one.message: one for one in found.value.diagnostics}.values()
    assert problem.code == "GS069"
    assert field in text.splitlines()[problem.span.line - 1]
    load(text.replace("precision: {loss_scale: dynamic}\n", ""))

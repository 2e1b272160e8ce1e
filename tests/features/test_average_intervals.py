"""`every` counts writes of the source, or time, and `interval_correction` says what the writes in between do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from tests.features.averages import SPEC, follow, make, read
from tests.features.steps import build_step

pytestmark = pytest.mark.row("E2")

TF = [(1 + t) / (10 + t) for t in range(13)]


def held(averages: list[tuple[int, float]], steps: int) -> list[float]:
    """Return e after each step, where it keeps so much in some of them."""
    found, e, kept = [], 0.0, dict(averages)
    for t in range(1, steps + 1):
        e = kept[t] * e + (1 - kept[t]) * t if t in kept else e
        found.append(e)
    return found


@pytest.mark.parametrize("every", ["3", "1 epochs", "12 samples", "3 steps", "3ba", "0.25 run"])
def test_an_interval_is_a_number_of_writes_or_a_time(every: str, backend: str) -> None:
    found = follow(make(backend, f"decay: 0.9, every: {every}"), 7)
    assert np.allclose(found, held([(3, 0.9), (6, 0.9)], 7), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ("half_life: 4 updates", [2 ** (-2 / 4)] * 3),
        ("half_life: 4 updates, interval_correction: none", [2 ** (-1 / 4)] * 3),
        ("decay: 0.9, interval_correction: compound", [0.81] * 3),
        ("decay: {kind: tf, max: 1.0}", [TF[2], TF[4], TF[6]]),
        (
            "decay: {kind: tf, max: 1.0}, interval_correction: compound",
            [TF[1] * TF[2], TF[3] * TF[4], TF[5] * TF[6]],
        ),
        ("decay: {kind: power, gamma: 6.94}", [((t - 2) / t) ** 7.94 for t in (2, 4, 6)]),
        ("decay: {kind: power, gamma: 6.94}, interval_correction: none", [((t - 1) / t) ** 7.94 for t in (2, 4, 6)]),
        ("decay: {kind: uniform}", [0, 1 / 2, 2 / 3]),  # a mean of what was averaged, as swa_utils' n_averaged says
    ],
)
def test_writes_in_between_are_passed_over_or_compounded(fields: str, kept: list[float], backend: str) -> None:
    found = follow(make(backend, f"{fields}, every: 2"), 6)
    assert np.allclose(found, held(list(zip((2, 4, 6), kept, strict=True)), 6), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("correction", "left"), [("compound", 0.999**20), ("none", 0.999**2)])
def test_without_a_correction_far_more_of_the_beginning_is_left(correction: str, left: float, backend: str) -> None:
    text = SPEC.replace("ops:", "  slow: {parameter: {shape: [2], init: 1.0}}\nops:")
    fields = f"into: slow, decay: 0.999, every: 10, interval_correction: {correction}"
    step = make(backend, fields, text, settings=["models.w.optimizer.lr=0.0"])
    for _ in range(20):
        step({})
    assert math.isclose(read(step, "slow"), left, rel_tol=1e-12)


def test_an_interval_that_is_no_whole_number_of_writes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"E-PACE.*`every: 10 samples` of 'average' cannot be counted: it is 2\.5"):
        compile_step(load(SPEC.replace("FIELDS", "decay: 0.9, every: 10 samples")), pace=Pace(batch=4))
    with pytest.raises(SpecError, match=r"E-PACE.*it is not known how many steps an epoch has"):
        compile_step(load(SPEC.replace("FIELDS", "decay: 0.9, every: 1 epochs")))


def test_a_formula_over_an_unknown_number_of_writes_is_refused() -> None:
    text = SPEC.replace("  average:", "  more: {update: w, loss: loss, every: 3, after: step}\n  average:")
    text = text.replace("FIELDS", "decay: {kind: tf, max: 0.9}, every: more")
    with pytest.raises(SpecError, match=r"E-INTERVAL"):
        compile_step(load(text))


PARTIAL = """
graphspec: 1
name: partial
inputs: {x: {shape: [batch, 2]}}
models:
  w: {parameter: {shape: [2], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  a: {parameter: {shape: [2], init: 0.0}}
  b: {parameter: {shape: [2], init: 0.0}}
  c: {parameter: {shape: [2], init: 0.0}}
  d: {parameter: {shape: [2], init: 0.0}}
ops:
  value: {forward: w}
  slope: {call: neg, inputs: value}
  loss: {call: sum, inputs: slope}
  step: {update: w, loss: loss}
"""
AVERAGES = {
    "every": "{ema: w, into: a, decay: 0.9, every: 2}",
    "half": "{ema: w, into: b, half_life: 3 updates, every: 2}",
    "start": "{ema: w, into: c, decay: 0.9, start: 10 updates}",
    "mean": "{ema: w, into: d, decay: {kind: uniform}}",
}
SOMETIMES = "  part:\n    sometimes: 0.5\n    ops:\n" + "".join(f"      {n}: {each}\n" for n, each in AVERAGES.items())
DATASET = "".join(f"  {n}: {each[:-1]}, dataset: one}}\n" for n, each in AVERAGES.items())
DATASET += "data: {train: {one: {source: npz, path: x.npz, batch: 4}, two: {source: npz, path: x.npz, batch: 4}}}\n"


@pytest.mark.parametrize("part", [SOMETIMES, DATASET], ids=["sometimes", "dataset"])
def test_an_average_that_runs_in_some_steps_counts_the_writes_in_these(part: str, backend: str) -> None:
    """Only a `start` is a time of the run: it counts all updates of the source."""
    step, batch, steps = build_step(PARTIAL + part, backend), {"x": np.zeros((4, 2))}, range(1, 21)
    mine: list[int] = []  # the steps in which the averages run
    for t in steps:
        step(batch, dataset=("two", "one", "one")[t % 3] if part == DATASET else None)
        mine += [t] if any(op.endswith("mean") for op in step.report.fired) else []
    assert mine == [t for t in steps if t % 3] if part == DATASET else 4 < len(mine) < 16
    begun = [t for t in mine if t >= 10]
    assert begun != mine
    expected = {
        "a": held([(t, 0.9) for t in mine[1::2]], 20)[-1],
        "b": held([(t, 2 ** (-2 / 3)) for t in mine[1::2]], 20)[-1],
        "c": held([(t, 0.9 if n else 0.0) for n, t in enumerate(begun)], 20)[-1],
        "d": np.mean(mine),
    }
    for name, value in expected.items():
        assert np.isclose(read(step, name), value, rtol=1e-12, atol=0), name

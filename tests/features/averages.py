"""An average of a weight that grows by one in every step, so that it is t after step t."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler import Pace, compile_step
from graphspec import load
from runtime import Step, build
from tests.features.steps import weights

SPEC = """
graphspec: 1
name: averaged
models:
  w: {parameter: {shape: [2], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  value: {forward: w}
  height: {call: sum, inputs: value}
  loss: {call: neg, inputs: height}
  step: {update: w, loss: loss}
  average: {ema: w, FIELDS}
outputs: [height]
"""
PACE = Pace(epoch=3, batch=4, run=12)


def make(backend: str, fields: str, text: str = SPEC, dtype: str = "float64", settings: Sequence[str] = ()) -> Step:
    """Return a step with an average of these fields."""
    plan = compile_step(load(text.replace("FIELDS", fields), [*settings, "rng=portable"]), backend, pace=PACE)
    return build(plan, device="cpu", dtype=dtype)


def read(step: Step, name: str = "average") -> float:
    """Return the average of the first number of the weight."""
    return float(weights(step)[f"{name}.value"][0])


def follow(step: Step, steps: int) -> list[float]:
    """Return the average after each of some steps."""
    return [step({}) and read(step) for _ in range(steps)]


def lerp(decay: Callable[[int], float], writes: int, begin: float = 0.0) -> list[float]:
    """Return e after each write of w = 1, 2, ...: e <- d e + (1 - d) w, by hand."""
    found: list[float] = []
    for t in range(1, writes + 1):
        begin = decay(t) * begin + (1 - decay(t)) * t
        found.append(begin)
    return found

"""Where `explain` says that a `stop` cuts nothing, a step without it learns the same; elsewhere it does not."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.steps import build_step, set_weights, weights

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(2, 5, 2))
WEIGHTS = {f"{name}.{layer}.weight": RNG.normal(size=(2, 2)) for name in "ab" for layer in (0, 2)}
SPEC = """
graphspec: 1
name: stops
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: {out: 2, bias: false}}, tanh, {linear: {out: 2, bias: false}}], optimizer: sgd}
  b: {like: a, optimizer: sgd}
ops:
  seen: {forward: a, inputs: x}
  by_b: {forward: b, inputs: x, stop: true}
  of_a: {forward: a, inputs: y, stop: true}
  slope_a: {gradient: "sum(seen**2)", wrt: x, stop: true}
  slope_b: {gradient: "sum(b_squared)", wrt: x, stop: true}
  for_b: {forward: b, inputs: x}
  b_squared: {expr: "for_b**2"}
  far: {expr: "seen - stop(x) * stop(seen) + stop(for_b)"}
  near: {expr: "one_hot(stop(argmax(seen)), classes=2)"}
  steep: {expr: "seen * (slope_a + slope_b + near)"}
  step_a: {update: a, loss: "mean(far**2) + mse(seen, by_b) + mse(seen, of_a) + mean(steep)"}
  step_b: {update: b, loss: "mse(for_b, stop(seen + y)) + mean(for_b * stop(2 * for_b))"}
"""
NEEDLESS = "`{}` cuts nothing: gradient {} is for {}, and what is stopped depends on none of these"
CASES = (
    ("by_b", "b, inputs: x, stop: true", "b, inputs: x", NEEDLESS.format("stop: true", "step_a", "a")),
    ("of_a", "a, inputs: y, stop: true", "a, inputs: y", ""),
    ("slope_a", '"sum(seen**2)", wrt: x, stop: true', '"sum(seen**2)", wrt: x', ""),
    (
        "slope_b",
        '"sum(b_squared)", wrt: x, stop: true',
        '"sum(b_squared)", wrt: x',
        NEEDLESS.format("stop: true", "step_a", "a"),
    ),
    ("far", "stop(x)", "x", NEEDLESS.format("stop(x)", "step_a", "a")),
    ("far", "stop(seen)", "seen", ""),
    ("far", "stop(for_b)", "for_b", NEEDLESS.format("stop(for_b)", "step_a", "a")),
    ("step_b.loss", "stop(seen + y)", "(seen + y)", NEEDLESS.format("stop(seen + y)", "step_b", "b")),
    ("step_b.loss", "stop(2 * for_b)", "(2 * for_b)", ""),
    (
        "near",
        "stop(argmax(seen))",
        "argmax(seen)",
        "`stop(argmax(seen))` cuts nothing: no gradient comes here without it",
    ),
)


def learn(text: str, backend: str) -> np.ndarray:
    """Return all weights after a step."""
    step = build_step(text, backend)
    set_weights(step, WEIGHTS)
    step({"x": X, "y": Y})
    return np.concatenate([weights(step)[name].ravel() for name in WEIGHTS])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("op", "written", "without", "said"), CASES)
def test_a_stop_is_needless_where_a_step_without_it_learns_the_same(backend, op, written, without, said):
    assert SPEC.count(written) == 1
    stop = written if written.startswith("stop") else "stop: true"
    lines = (line.strip() for line in compile_step(load(SPEC), backend).explain(op).splitlines())
    assert [line for line in lines if line.startswith(f"`{stop}`")] == ([said] if said else [])
    same = np.array_equal(learn(SPEC, backend), learn(SPEC.replace(written, without), backend))
    assert same is bool(said)

"""Models compute in float16 with float32 weights; the scale backs off after overflows, and is saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime import Step
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A9")

SPEC = """
graphspec: 1
name: half
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: adam, lr: 0.01}}
  b: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
  slow_a: {like: a}
  slow_b: {like: b}
ops:
  h: {forward: a, inputs: x}
  p: {forward: b, inputs: h}
  steep: {loss: wasserstein, inputs: h, weight: 1000.0}
  flat: {loss: wasserstein, inputs: p}
  step_a: {update: a, loss: steep}
  step_b: {update: b, loss: flat}
  average_a: {ema: a, into: slow_a, decay: 0.5}
  average_b: {ema: b, into: slow_b, decay: 0.5}
precision: float16
"""
BATCH = {"x": np.array([[0.5, -1.0], [1.0, 0.25]], np.float32)}
SKIPPED = 8
"""float16 ends at 65,504. A slope of `h` is 1,000 / 4 times the scale, and one of the weights is 1.5 times that: the
first power of two below 65,504 / 375 is 2 ** 7."""


def made(backend: str, policy: str = "group") -> Step:
    settings = [f"ops.{name}.on_overflow={policy}" for name in ("step_a", "step_b")]
    return build_step(SPEC, backend, settings, dtype="float32")


def tensors(step: Step) -> dict[str, bytes]:
    return {name: step.numpy(value).tobytes() for name, value in step.tensors().items()}


def skips(step: Step) -> int:
    """Take steps until the gradients of both models are finite; return how many were not."""
    for number in range(20):
        step(BATCH)
        if step.report.scale_after == step.report.scale_before:
            return number
    raise AssertionError("every step overflows")


@pytest.mark.parametrize("policy", ["group", "all"])
def test_an_overflow_in_one_model_holds_both_until_the_scale_fits(policy: str, backend: str) -> None:
    step = made(backend, policy)
    before = tensors(step)
    step(BATCH)
    assert tensors(step) == before
    assert step.report.held == ("step_a", "step_b", "average_a", "average_b")
    assert [step.report.updates[name].nonfinite for name in ("step_a", "step_b")] == ["a.0.weight", None]
    assert skips(step) + 1 == SKIPPED
    assert step.report.scale_after == 2.0**7
    assert [step.optimizers[name].iterations for name in ("a", "b")] == [1, 1]


def test_own_lets_the_other_model_go_on(backend: str) -> None:
    step = made(backend, "own")
    before = tensors(step)
    step(BATCH)
    moved = {name for name, value in tensors(step).items() if before.get(name) != value}
    assert {name.split(".")[1] for name in moved} == {"b", "slow_b"}
    assert skips(step) + 1 == SKIPPED
    assert [step.optimizers[name].iterations for name in ("a", "b")] == [1, SKIPPED + 1]


def test_the_first_step_that_fits_is_that_of_float32(backend: str) -> None:
    half, full = made(backend), build_step(SPEC, backend, ["precision=float32"], dtype="float32")
    skips(half)
    full(BATCH)
    for name, value in weights(full).items():
        assert weights(half)[name].dtype == np.float32
        assert np.allclose(weights(half)[name], value, rtol=2e-3, atol=1e-4), name


def test_the_scale_comes_back_with_a_checkpoint(tmp_path: Path, backend: str) -> None:
    whole, half, rest = made(backend), made(backend), made(backend)
    for _ in range(12):
        whole(BATCH)
    for _ in range(5):
        half(BATCH)
    half.save(tmp_path / "saved")
    rest.load(tmp_path / "saved")
    for _ in range(7):
        rest(BATCH)
    assert tensors(rest) == tensors(whole)
    assert rest.report.scale_after == whole.report.scale_after

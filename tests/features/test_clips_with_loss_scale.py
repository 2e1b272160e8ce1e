"""Clips and everything else see unscaled gradients, and verdicts see them before any clip."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.overflows import INF, SPEC, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("B5")

SCALE = "precision.loss_scale=128"


def test_a_norm_is_that_of_the_true_gradient(backend: str) -> None:
    step = made(backend, [SCALE, "ops.step.clip={norm: 1.0}"])
    give(step, [3.0, 4.0])
    assert np.allclose(weights(step)["v.value"], [-0.6, -0.8], atol=1e-7)  # before unscaling: -.0047, -.0063


def test_a_clipped_value_hides_no_infinity(backend: str) -> None:
    step = made(backend, [SCALE, "ops.step.clip={value: 1.0}"])
    give(step, [INF, 1.0])
    assert weights(step)["v.value"].tolist() == [0.0, 0.0]
    assert step.report.updates["step"].skipped


def test_a_transform_of_the_users_hides_none_either(backend: str) -> None:
    ops = "  slopes: {gradient: cost, wrt: v}\n  kept: {transform: clip_value, inputs: slopes, args: {value: 1.0}}\n"
    text = SPEC.replace("{update: v, loss: cost}", "{update: v, gradients: kept}").replace("  step:", f"{ops}  step:")
    step = made(backend, [SCALE], text=text)
    give(step, [INF, 1.0])
    give(step, [5.0, 0.5])
    assert weights(step)["v.value"].tolist() == [-1.0, -0.5]


@pytest.mark.parametrize("policy", ["{norm: 1.0}", "{value: 0.5}"])
def test_an_accumulated_clip_comes_behind_all_of_it(policy: str, backend: str) -> None:
    scaled = made(backend, [SCALE, f"ops.step.clip={policy}", "ops.step.accumulate={steps: 2, reduce: steps}"])
    give(scaled, [3.0, 0.0])
    give(scaled, [3.0, 8.0])
    expected = [-0.6, -0.8] if "norm" in policy else [-0.5, -0.5]
    assert np.allclose(weights(scaled)["v.value"], expected, atol=1e-6)

"""An update takes gradients that other ops computed, with and without a loss scale."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.overflows import INF, SPEC, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("A2")

GIVEN = SPEC.replace(
    "{update: v, loss: cost}",
    "{update: v, gradients: [whole]}\n"
    "  slopes: {gradient: cost, wrt: v}\n"
    "  twice: {call: mul, inputs: [slopes, 2.0]}\n"
    "  whole: {call: add, inputs: [slopes, twice]}",
)


@pytest.mark.parametrize("scale", ["none", "1024", "{initial: 8, growth_steps: 1}"])
def test_gradients_that_were_reckoned_with_are_applied(scale: str, backend: str) -> None:
    step = made(backend, [f"precision.loss_scale={scale}"], text=GIVEN)
    give(step, [1.0, -2.0])
    give(step, [1.0, 1.0])
    assert weights(step)["v.value"].tolist() == [-6.0, 3.0]


def test_the_verdict_is_about_the_gradients_they_were_made_of(backend: str) -> None:
    step = made(backend, ["precision.loss_scale={initial: 8}"], text=GIVEN)
    give(step, [1.0, INF])
    assert np.array_equal(weights(step)["v.value"], [0.0, 0.0])
    assert (step.report.updates["step"].skipped, step.report.scale_after) == (True, 4)

"""What the plans of published programs show, and what their specs say of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler import Plan, compile_step
from graphspec import load
from runtime import build
from tests.examples.test_specs import EXAMPLES, plan_of

RECORDED = {
    "wgan-gp": ({"slope"}, {"slope"}),
    "stylegan2-lazy": ({"pull", "slope"}, {"pull", "slope"}),
    "fgsm": ({"slope"}, set()),
    "uncertainty": (set(), set()),
    "tied-lm": (set(), set()),
    "sac": (set(), set()),
}
"""The gradients whose graph is kept, and those that are recorded themselves."""


def told(plan: Plan, code: str) -> set[str]:
    """Return what decisions of a code are about."""
    return {each["subject"] for each in plan.to_json()["decisions"] if each["code"] == code}


@pytest.mark.parametrize("name", RECORDED)
def test_a_gradient_is_recorded_where_another_differentiates_it(name: str) -> None:
    kept, recorded = RECORDED[name]
    plan = plan_of(name)
    assert told(plan, "RETAIN") == kept
    assert told(plan, "CREATE_GRAPH") == recorded


def test_wgans_generator_has_a_step_in_every_fifth() -> None:
    functions = plan_of("wgan-gp").to_json()["functions"]
    assert [each["active"] for each in functions] == [["step_critic"], ["step_critic", "step_generator"]]


@pytest.mark.parametrize(("player", "steps", "beta"), [("g", 8, 0.99), ("d", 16, 0.99)])
def test_adam_is_adjusted_to_the_steps_that_the_penalties_add(player: str, steps: int, beta: float) -> None:
    told = load(EXAMPLES / "stylegan2-lazy" / "stylegan2-lazy.yaml")
    share = steps / (steps + 1)
    model = told.models["synthesis" if player == "g" else "discriminator"]
    assert model.optimizer.options["lr"] == pytest.approx(0.002 * share, abs=1e-9)
    assert model.optimizer.options["betas"] == pytest.approx((0.0, beta**share), abs=1e-6)


def end_of(path: Path, steps: int = 17) -> dict[str, np.ndarray]:
    """Return all weights, slots and states after some steps of noise."""
    step = build(compile_step(load(path, ["rng=portable"])), device="cpu")
    random = np.random.default_rng(0)
    for _ in range(steps):
        step({"image": random.normal(size=(6, 1, 8, 8)).astype(np.float32)})
    return dict(step.state().arrays)


@pytest.mark.needs("torch")
def test_factors_that_are_written_out_give_the_same_weights_bit_for_bit() -> None:
    folder = EXAMPLES / "stylegan2-lazy"
    one, other = (end_of(folder / f"stylegan2-{kind}.yaml") for kind in ("lazy", "factors"))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)

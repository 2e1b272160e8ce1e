"""A graph is kept exactly as long as another gradient runs through it."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import load
from tests.features.test_a6 import GAN

APART = GAN.replace(
    "  step_d:",
    "  fake_again: {forward: g, inputs: z}\n  judged: {forward: d, inputs: fake_again, after: []}\n  step_d:",
)


@pytest.mark.parametrize("order", ["fewest", "listed"])
def test_the_first_of_two_gradients_through_one_forward_keeps_the_graph(order: str) -> None:
    plan = compile_step(load(GAN), "torch", order)
    gradients = [each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "gradient"]
    assert [each["retain_graph"] for each in gradients] == [True, False]


def test_losses_that_share_nothing_keep_nothing() -> None:
    text = APART.replace(
        "g_loss: {loss: bce_with_logits, inputs: [fake_score, 1.0]}",
        "g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}",
    )
    plan = compile_step(load(text), "torch")
    gradients = [each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "gradient"]
    assert [each["retain_graph"] for each in gradients] == [False, False]

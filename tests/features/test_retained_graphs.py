"""A graph is kept exactly as long as another gradient runs through it."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import load
from tests.features.steps import build_step
from tests.features.test_deferred_updates import GAN

pytestmark = pytest.mark.row("A7")

APART = GAN.replace(
    "  step_d:",
    "  fake_again: {forward: g, inputs: z}\n  judged: {forward: d, inputs: fake_again, after: []}\n  step_d:",
)
NOTHING = APART.replace(
    "g_loss: {loss: bce_with_logits, inputs: [fake_score, 1.0]}",
    "g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}",
)


@pytest.mark.parametrize("order", ["fewest", "listed"])
def test_the_first_of_two_gradients_through_one_forward_keeps_the_graph(order: str, backend: str) -> None:
    plan = compile_step(load(GAN), backend, order)
    gradients = [each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "gradient"]
    assert [each["retain_graph"] for each in gradients] == [True, False]


def test_what_is_written_keeps_as_much_and_no_more(backend: str) -> None:
    """On TensorFlow what two gradients run through is recorded by two tapes, one inside the other."""
    shared = {"torch": "retain_graph=True", "tensorflow": "        with tf.GradientTape("}[backend]
    for text, kept in ((GAN, 1), (NOTHING, 0)):
        assert build_step(text, backend).source.count(shared) == kept


def test_losses_that_share_nothing_keep_nothing(backend: str) -> None:
    plan = compile_step(load(NOTHING), backend)
    gradients = [each for each in plan.to_json()["functions"][0]["instructions"] if each["kind"] == "gradient"]
    assert [each["retain_graph"] for each in gradients] == [False, False]

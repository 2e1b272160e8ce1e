"""The compiler infers what must wait, with reasons, and nothing else waits; `defer` asks for `end` or `never`."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load

pytestmark = pytest.mark.row("A6")

GAN = """
graphspec: 1
name: shared-fake
inputs: {image: {shape: [batch, 4]}, z: {shape: [batch, 3]}}
models:
  g: {layers: [{linear: 5}, tanh, {linear: 4}], optimizer: sgd}
  d: {layers: [{linear: 5}, tanh, {linear: 1}], optimizer: sgd}
ops:
  fake: {forward: g, inputs: z}
  real_score: {forward: d, inputs: image}
  fake_score: {forward: d, inputs: fake, after: []}
  on_real: {loss: bce_with_logits, inputs: [real_score, 1.0]}
  on_fake: {loss: bce_with_logits, inputs: [fake_score, 0.0]}
  d_loss: {call: add, inputs: [on_real, on_fake]}
  g_loss: {loss: bce_with_logits, inputs: [fake_score, 1.0]}
  step_d: {update: d, loss: d_loss}
  step_g: {update: g, loss: g_loss}
"""


def deferred(order: str, *settings: str, backend: str = "torch") -> dict[str, str]:
    plan = compile_step(load(GAN, settings), backend, order)
    decisions = (each for graph in plan.graphs.values() for each in graph.decisions)
    return {each.subject: each.text for each in decisions if each.code == "DEFER"}


def test_in_the_listed_order_the_first_update_waits_for_the_gradient_that_reads_what_it_writes() -> None:
    assert deferred("listed").keys() == {"step_d"}
    assert "step_g" in deferred("listed")["step_d"]


def test_in_the_best_order_none_waits_and_tapes_make_none_wait(backend: str) -> None:
    assert deferred("fewest", backend=backend) == {}
    assert deferred("listed", backend="tensorflow") == {}


def test_an_update_can_be_put_at_the_end(backend: str) -> None:
    assert deferred("fewest", "ops.step_g.defer=end", backend=backend).keys() <= {"step_g"}


def test_at_once_is_refused_where_it_would_be_wrong() -> None:
    with pytest.raises(SpecError, match="E-DEFER"):
        compile_step(load(GAN, ["ops.step_d.defer=never"]), "torch", "listed")

"""Specs that were once compiled wrongly; each was found by a random spec and made small."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import compile_step
from compiler.ir.instructions import Apply, Gradient
from graphspec.diagnostics import SpecError
from graphspec.loading import load

SPECS = Path(__file__).parent / "regressions"


def plan_of(name, order="fewest"):
    return compile_step(load(SPECS / f"{name}.yaml"), order=order)


def writes_and_gradients(plan):
    (function,) = plan.program.mode("train").functions
    kinds = {Gradient: "gradient", Apply: "apply"}
    return [f"{kinds[type(each)]} {each.op}" for each in function.instructions if type(each) in kinds]


def deferred(plan):
    return [each.subject for each in plan.graphs["train_step"].decisions if each.code == "DEFER"]


def test_a_clip_does_not_hide_a_deferral():
    assert deferred(plan_of("clipped-apart", "listed")) == ["step_d"]


def test_the_fewest_deferrals_are_found_behind_clips():
    plan = plan_of("clipped-apart")
    assert deferred(plan) == []
    assert writes_and_gradients(plan) == ["gradient step_g", "apply step_g", "gradient step_d", "apply step_d"]


def test_a_clipped_update_is_written_as_soon_as_it_may():
    order = writes_and_gradients(plan_of("clipped"))
    assert all(order.index(f"apply {name}") == order.index(f"gradient {name}") + 1 for name in ("step_a", "step_b"))


def test_what_follows_an_update_does_not_fire_in_modes_without_it():
    program = plan_of("follows-an-update").program
    fired = {mode.mode: [each.op for each in mode.functions[0].instructions] for mode in program.modes}
    assert "seen" in fired["train"]
    assert "seen" not in fired["eval"]
    assert program.mode("eval").gates == ()


@pytest.mark.parametrize("name", ["own-term", "behind-a-term"])
def test_a_term_that_is_the_target_reaches_it(name):
    assert plan_of(name).warnings == ()


def test_a_model_that_is_only_followed_has_no_sizes():
    with pytest.raises(SpecError, match=r"E-SHAPE.*no op calls model 'other'"):
        plan_of("never-called")

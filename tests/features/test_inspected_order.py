"""The order and its reasons can be printed, explained op by op, compared and exported."""

from __future__ import annotations

import json

import pytest

from compiler import compile_step
from compiler.plan.diff import compare_plans, format_difference
from graphspec import load
from tests.features.test_deferred_updates import GAN

pytestmark = pytest.mark.row("A20")


def test_a_plan_says_what_waits_and_for_what() -> None:
    plan = compile_step(load(GAN), "torch", "listed")
    assert "DEFER        apply step_d is deferred after gradient step_g" in str(plan)
    assert "step_g" in plan.explain("step_d")


def test_a_plan_is_data(backend: str) -> None:
    told = json.loads(json.dumps(compile_step(load(GAN), backend).to_json()))
    assert told["backend"] == backend
    assert {each["kind"] for each in told["functions"][0]["instructions"]} >= {"forward", "gradient", "apply"}


def test_two_plans_are_compared() -> None:
    fewest, listed = (compile_step(load(GAN), "torch", order) for order in ("fewest", "listed"))
    assert "step_d" in format_difference(compare_plans(fewest, listed))

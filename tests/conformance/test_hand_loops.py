"""Ten steps of every published program equal the loop that an expert writes by hand, in float64, to 1e-12."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import load
from tests.conformance.case import Case
from tests.conformance.loops import CASES, POLICIES, RULES, by_hand, by_spec, differences

OURS = (
    *((policy, "fused") for policy in POLICIES),
    ("fewest", "not fused"),
    ("fewest", "as it comes"),  # which is one of the two, whichever the device has
)

every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.xdist_group(f"loop {case.name}"), id=case.name) for case in CASES]
)  # what one process has run for one test it need not run for another


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("policy", "fused"), OURS)
@every_case
def test_ten_steps_equal_the_hand_written_loop(case: Case, policy: str, rule: str, fused: str) -> None:
    ours = by_spec(case, rule, fused, policy)
    for hand in ("as it comes", "fused"):
        assert max(differences(ours, by_hand(case, case.loop, rule, hand))) <= 1e-12


@every_case
def test_a_loop_with_one_mistake_is_told_apart(case: Case) -> None:
    ours = by_spec(case, "sgd", "as it comes", "fewest")
    assert max(differences(ours, by_hand(case, case.mutant, "sgd", "as it comes"))) > 1e-6


@pytest.mark.parametrize("policy", ["listed", "fewest"])
@every_case
def test_exactly_those_updates_wait_that_must(case: Case, policy: str) -> None:
    plan = compile_step(load(case.spec("sgd"), ["join_gradients=false"]), order=policy)
    waiting = {each["subject"] for each in plan.to_json()["decisions"] if each["code"] == "DEFER"}
    assert waiting == (case.listed if policy == "listed" else case.fewest)


def test_no_graph_is_kept_where_the_losses_share_none() -> None:
    strangers = next(case for case in CASES if case.name == "three independent models")
    decisions = compile_step(load(strangers.spec("sgd")), order="listed").to_json()["decisions"]
    assert [each for each in decisions if each["code"] in ("RETAIN", "CREATE_GRAPH")] == []

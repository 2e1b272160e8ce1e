"""Ten steps of every published program equal the loop that an expert writes by hand, in float64, to 1e-12."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import cache, partial

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build
from tests.conformance.case import Case, Loop, Tensors
from tests.conformance.programs import actor_critic, byol, cyclegan, gan, one_loss

CASES = (*gan.CASES, *cyclegan.CASES, *actor_critic.CASES, *byol.CASES, *one_loss.CASES)
POLICIES = ("fewest", "listed", "latest", "memory")
RULES = {
    "sgd": (partial(torch.optim.SGD, lr=0.02, momentum=0.9), "name: sgd, lr: 0.02, momentum: 0.9"),
    "adam": (partial(torch.optim.Adam, lr=0.01, eps=1e-4), "name: adam, lr: 0.01, eps: 1e-4"),
}
FUSED = {"as it comes": ("", {}), "fused": (", fused: true", {"fused": True}), "not fused": (", fused: false", {})}

OURS = (
    *((policy, "fused") for policy in POLICIES),
    ("fewest", "not fused"),
    ("fewest", "as it comes"),  # which is one of the two, whichever the device has
)

every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.xdist_group(f"loop {case.name}"), id=case.name) for case in CASES]
)  # what one process has run for one test it need not run for another
Record = tuple[list[Tensors], Tensors]
"""The outputs of every step, and all weights, buffers and averages at the end."""


@cache
def by_hand(case: Case, loop: type[Loop], rule: str, fused: str) -> Record:
    """Run a loop of a case and record what comes of it."""
    made = loop(partial(RULES[rule][0], **FUSED[fused][1]))
    outputs = [made.step(**batch) for batch in case.batches()]
    return outputs, state_of(made.nets)


RECORDS: dict[tuple[Case, str], Record] = {}
"""What came of the steps of a case, by the program: where policies come to the same order, it is run once."""


def by_spec(case: Case, rule: str, fused: str, policy: str) -> Record:
    """Run a spec from the loop's weights and record what comes of it."""
    plan = compile_step(load(case.spec(f"{{{RULES[rule][1]}{FUSED[fused][0]}}}")), order=policy)
    name = policy if case.given else ""  # with given nets, `build` compiles under the policy once more
    key = case, repr(replace(plan.program, order=name))
    if key not in RECORDS:
        step = built(case, plan)
        RECORDS[key] = [step(batch) for batch in case.batches()], state_of(step.models)
    return RECORDS[key]


def built(case: Case, plan: Plan) -> Step:
    """Build a plan with the loop's nets where they are to be given, and with their weights everywhere else."""
    nets = case.loop(partial(torch.optim.SGD, lr=0.0)).nets
    given = {name: copy.deepcopy(nets[name]) for name in case.given}
    step = build(plan, device="cpu", seed=5, dtype="float64", models=given)
    for name, model in step.models.items():
        model.load_state_dict(nets[name].state_dict())
    return step


def state_of(nets: dict[str, nn.Module]) -> Tensors:
    """Return copies of all weights and buffers by name."""
    states = {name: net.state_dict() for name, net in nets.items()}
    return {f"{name}.{key}": value.clone() for name, state in states.items() for key, value in state.items()}


def differences(one: Record, other: Record) -> Iterable[float]:
    """Yield the largest difference of every output of every step, and of every tensor at the end."""
    for ours, theirs in zip((*one[0], one[1]), (*other[0], other[1]), strict=True):
        assert ours.keys() == theirs.keys()
        yield from ((ours[name] - theirs[name]).abs().max().item() for name in ours)


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
    plan = compile_step(load(case.spec("sgd")), order=policy)
    waiting = {each["subject"] for each in plan.to_json()["decisions"] if each["code"] == "DEFER"}
    assert waiting == (case.listed if policy == "listed" else case.fewest)


def test_no_graph_is_kept_where_the_losses_share_none() -> None:
    strangers = next(case for case in CASES if case.name == "three independent models")
    decisions = compile_step(load(strangers.spec("sgd")), order="listed").to_json()["decisions"]
    assert [each for each in decisions if each["code"] in ("RETAIN", "CREATE_GRAPH")] == []

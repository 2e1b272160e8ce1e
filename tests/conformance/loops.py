"""Published programs and the loops that experts write by hand for them: what ten steps of each give."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import cache, partial

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

Record = tuple[list[Tensors], Tensors]
"""The outputs of every step, and all weights, buffers and averages at the end."""


@cache
def by_hand(case: Case, loop: type[Loop], rule: str, fused: str) -> Record:
    """Run a loop of a case and record what comes of it."""
    made = loop(partial(RULES[rule][0], **FUSED[fused][1]))
    outputs = [made.step(**batch) for batch in case.batches()]
    return outputs, state_of(made.nets)


RECORDS: dict[tuple[Case, str, str], Record] = {}
"""What came of the steps of a case, by the program: where policies come to the same order, it is run once."""


def by_spec(case: Case, rule: str, fused: str, policy: str, device: str = "cpu") -> Record:
    """Run a spec from the loop's weights on a device, and record what comes of it on the host."""
    plan = compile_step(load(case.spec(f"{{{RULES[rule][1]}{FUSED[fused][0]}}}")), order=policy)
    name = policy if case.given else ""  # with given nets, `build` compiles under the policy once more
    key = case, device, repr(replace(plan.program, order=name))
    if key not in RECORDS:
        step = built(case, plan, device)
        outputs = [{name: each.cpu() for name, each in step(batch).items()} for batch in case.batches()]
        RECORDS[key] = outputs, state_of(step.models)
    return RECORDS[key]


def built(case: Case, plan: Plan, device: str = "cpu") -> Step:
    """Build a plan with the loop's nets where they are to be given, and with their weights everywhere else."""
    nets = case.loop(partial(torch.optim.SGD, lr=0.0)).nets
    given = {name: copy.deepcopy(nets[name]) for name in case.given}
    step = build(plan, device=device, seed=5, dtype="float64", models=given)
    for name, model in step.models.items():
        model.load_state_dict(nets[name].state_dict())
    return step


def state_of(nets: dict[str, nn.Module]) -> Tensors:
    """Return copies of all weights and buffers by name, on the host."""
    states = {name: net.state_dict() for name, net in nets.items()}
    return {f"{name}.{key}": value.cpu().clone() for name, state in states.items() for key, value in state.items()}


def differences(one: Record, other: Record) -> Iterable[float]:
    """Yield the largest difference of every output of every step, and of every tensor at the end."""
    for ours, theirs in zip((*one[0], one[1]), (*other[0], other[1]), strict=True):
        assert ours.keys() == theirs.keys()
        yield from ((ours[name] - theirs[name]).abs().max().item() for name in ours)

"""Plans for TensorFlow: writes as early as its hazards allow, deferrals of the definition, the published format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random

import jsonschema
import pytest

from compiler import Plan
from graphspec.diagnostics import SpecError
from schemas import __file__ as schemas
from tests.oracle.meaning import Meaning
from tests.oracle.order import Order, Pairs
from tests.properties.plans import find_sequence, plan_of
from tests.properties.specs import random_spec
from tests.properties.test_order import deferred_in, derives_all, find_idle, find_moved, find_versions, is_told

SEEDS = range(30)
GROUPS = {policy: pytest.mark.xdist_group(f"orders for tapes {policy}") for policy in ("fewest", "listed", "memory")}
"""What one process has planned for one test it need not plan for another."""
POLICIES = pytest.mark.parametrize("policy", [pytest.param(name, marks=mark) for name, mark in GROUPS.items()])


class TapeOrder(Order):
    """The constraints where tapes keep what was read: a write waits for a pending gradient only if that recomputes."""

    def _on_path(self, gradient: str) -> list[str]:
        return [name for name in super()._on_path(gradient) if self.meaning.runs_again(name)]

    def recomputes(self) -> bool:
        """Return whether some gradient reads a model again."""
        return any(map(self._on_path, self.gradients))


@cache
def orders(seed: int, policy: str) -> tuple[tuple[Plan, Mapping, TapeOrder, Pairs], ...]:
    """Return the functions of a random spec's train plan, with what the definition says of their order."""
    try:
        whole = {**random_spec(Random(seed)), "micro_batches": 1}
        return tuple(describe(plan_of(whole, policy, "tensorflow")))
    except SpecError:
        return ()


def describe(plan: Plan) -> Iterator[tuple[Plan, Mapping, TapeOrder, Pairs]]:
    """Yield every function of whose order the definition tells all, with that order."""
    train = plan.program.mode("train")
    pairs = zip(train.functions, plan.to_json()["functions"], strict=True)
    for made, function in (pair for pair in pairs if is_told(pair[0])):
        meaning = Meaning(plan.spec, "train", next(iter(made.datasets), ""))
        order = TapeOrder(find_versions(meaning, plan, made))
        yield plan, function, order, order.constraints()


@pytest.mark.sample(3)
@POLICIES
def test_the_order_is_that_of_the_definition_and_no_write_is_later_than_it_must(policy):
    seen = 0
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, policy):
            position = {name: index for index, name in enumerate(find_sequence(function))}
            broken = [pair for pair in pairs if position[pair[0]] > position[pair[1]]]
            assert [pair for pair in broken if pair[1] not in find_moved(function)] == [], seed
            assert list(find_idle(plan, function, order, pairs)) == [], seed
            seen += 1
    assert seen > 60


@pytest.mark.sample(3)
@POLICIES
def test_deferred_is_what_must_wait_and_nothing_waits_for_a_pending_gradient(policy):
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, policy):
            decisions = plan.graphs[function["name"]].decisions
            waits = {reason.edge for one in decisions for reason in one.because}
            assert not waits & ({"buffer-war"} if order.recomputes() else {"backward-war", "buffer-war"}), seed
            if derives_all(plan, function, order):
                assert deferred_in(plan, function) == order.find_late(find_sequence(function), pairs), seed


@GROUPS["fewest"]
def test_in_the_best_order_as_few_wait_as_in_any():
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, "fewest"):
            if derives_all(plan, function, order) and 2 <= len(order.updates) <= 4:
                assert len(deferred_in(plan, function)) == order.find_fewest(pairs), seed


@GROUPS["fewest"]
def test_plans_are_of_the_published_schema():
    schema = json.loads((Path(schemas).parent / "plan.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for plan in {id(plan): plan for seed in SEEDS[1::3] for plan, *_ in orders(seed, "fewest")}.values():
        for program in plan.program.modes:
            validator.validate(plan.to_json(program.mode))

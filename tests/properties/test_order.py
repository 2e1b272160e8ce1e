"""Writes stand as early as they may, deferrals are those of the definition and as few as possible."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from compiler import Plan
from compiler.ir.instructions import Accumulate, Evaluate, Gradient, Instruction, TakeAccumulated
from compiler.ir.program import Function
from graphspec.declare.ops import CopyOp, EmaOp
from graphspec.diagnostics import SpecError
from tests.oracle.meaning import WRITERS, Meaning, Versions
from tests.oracle.order import Order
from tests.properties.plans import find_cloned, find_name, find_sequence, plan_of
from tests.properties.programs import is_conditional
from tests.properties.specs import random_spec

SEEDS = range(30)
AT_ONCE = ("apply", "blend", "assign", "store", "transform")
"""What is done as soon as it can be: writes, and the transforms of gradients before them."""


Known = tuple[Plan, Mapping, Order, set[tuple[str, str]]]


def each(*policies: str) -> pytest.MarkDecorator:
    """Return the parameter; what one process has planned for one test it need not plan for another."""
    together = [pytest.param(one, marks=pytest.mark.xdist_group(f"orders {one}"), id=one) for one in policies]
    return pytest.mark.parametrize("policy", together)


@functools.cache
def orders(seed: int, policy: str) -> tuple[Known, ...]:
    """Return the functions of a random spec's train plan, with what the definition says of their order."""
    return orders_of(random_spec(Random(seed)), policy)


def orders_of(document: Mapping, policy: str) -> tuple[Known, ...]:
    """Return the functions of a spec's train plan, with what the definition says of their order; of the whole batch."""
    try:
        return tuple(_describe(plan_of({**document, "micro_batches": 1}, policy)))
    except SpecError:
        return ()


def _describe(plan: Plan) -> Iterator[Known]:
    """Yield the functions of whose order the definition tells all."""
    for made, function in zip(plan.program.mode("train").functions, plan.to_json()["functions"], strict=True):
        if not is_told(made):
            continue
        meaning = Meaning(plan.spec, "train", next(iter(made.datasets), ""))
        order = Order(find_versions(meaning, plan, made))
        yield plan, function, order, order.constraints(find_cloned(function))


def is_told(made: Function) -> bool:
    """Return whether the definition tells all of the order of a function.

    It does not where a window is applied in a step that adds nothing to it and takes no gradient, where losses are
    taken apart into terms that count by themselves, which no spec names, and where models are frozen whole for now.
    """
    return not any(map(_is_untold, made.instructions))


def _is_untold(instruction: Instruction) -> bool:
    match instruction:
        case TakeAccumulated():
            return instruction.alone
        case Evaluate():
            return bool(instruction.counted)
        case Gradient():
            return bool(instruction.fully_frozen)
        case _:
            return False


def find_versions(meaning: Meaning, plan: Plan, made: Function) -> Versions:
    """Return the versions among the ops that run in a function; a write that never fires has no gate either."""
    gates = {gate.op for gate in plan.program.mode(meaning.mode).gates}
    closed = gates.difference(made.gated)
    closed |= {name for name, op in meaning.ops.items() if any(part.name in closed for part in op.within)}
    idle = {name for name in meaning.present if isinstance(meaning.ops[name], WRITERS)}.difference(gates, made.active)
    live = find_live(meaning, set(meaning.present) - closed - idle)
    functions = plan.program.mode(meaning.mode).functions
    ever = {one.op for each in functions for one in each.instructions if isinstance(one, Accumulate)}
    gathering = [name for name in meaning.accumulating if f"{name}.window" not in closed and name in ever]
    return Versions(meaning, meaning.firing(live, gathering), gathering)


def find_live(meaning: Meaning, admitted: set[str]) -> set[str]:
    """Return what is admitted without averages and copies of what nothing writes."""
    live = set(admitted)
    for name in meaning.gated:
        op = meaning.ops[name]
        if isinstance(op, EmaOp | CopyOp) and name in live:
            cells = meaning.storages.cells(op.ema if isinstance(op, EmaOp) else op.copy_)
            if not any(meaning.writes(other).intersection(cells) for other in meaning.past[name] & live):
                live.discard(name)
    return live


@pytest.mark.sample(3)
@each("fewest", "listed", "memory")
def test_no_write_stands_later_than_its_last_predecessor_requires(policy):
    late = []
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, policy):
            sequence = find_sequence(function)
            assert sorted(sequence) == sorted(order.nodes), seed
            late += [f"{seed}: {name}" for name in find_idle(plan, function, order, pairs)]
    assert late == []


def find_idle(plan: Plan, function: Mapping, order: Order, pairs: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the writes between which and their last predecessor something stands that is not done at once too."""
    sequence = find_sequence(function)
    position = {name: index for index, name in enumerate(sequence)}
    quick = {find_name(one) for one in function["instructions"] if one["kind"] in AT_ONCE}
    quick |= {name for name in sequence if name.endswith(".gather")}
    for write in (find_name(one) for one in function["instructions"] if one["kind"] in AT_ONCE[:-1]):
        last = max((position[before] for before, after in pairs if after == write), default=-1)
        between = set(sequence[last + 1 : position[write]]) - quick
        if between and getattr(order.ops[write], "defer", "auto") == "auto":
            yield f"{write} stands behind {sorted(between)}"


@pytest.mark.sample(3)
@each("fewest", "listed", "memory", "latest")
def test_every_sequence_keeps_the_order_of_the_definition(policy):
    for seed in SEEDS:
        for _, function, _, pairs in orders(seed, policy):
            position = {name: index for index, name in enumerate(find_sequence(function))}
            moved = find_moved(function)
            broken = [(before, after) for before, after in pairs if position[before] > position[after]]
            assert [pair for pair in broken if pair[1] not in moved] == [], seed


def find_moved(function: Mapping) -> set[str]:
    """Return the transforms that run behind the window of an update: they are a part of it, and wait as it does."""
    transforms = (one for one in function["instructions"] if one["kind"] == "transform")
    return {one["op"] for one in transforms if one["op"] not in one["outputs"]}


def derives_all(plan: Plan, function: Mapping, order: Order) -> bool:
    """Return whether every update takes the gradient of its own loss and may be written at once.

    A penalty that is only added where earlier updates are skipped waits for their verdicts, and their writes for it.
    """
    updates = [order.ops[name] for name in order.updates]
    if any(map(is_conditional, plan.graphs[function["name"]].nodes.values())):
        return False
    return all(op.loss is not None and op.defer == "auto" and op.shared is None for op in updates)


def deferred_in(plan: Plan, function: Mapping) -> set[str]:
    return {one.subject for one in plan.graphs[function["name"]].decisions if one.code == "DEFER"}


@pytest.mark.sample(3)
@each("fewest", "listed", "memory")
def test_deferred_is_what_must_wait_for_something_behind_its_own_gradient(policy):
    counted = 0
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, policy):
            if derives_all(plan, function, order):
                assert deferred_in(plan, function) == order.find_late(find_sequence(function), pairs), seed
                counted += 1
    assert counted > len(SEEDS) / 2


@pytest.mark.xdist_group("orders fewest")
def test_fewest_is_the_least_of_all_orders_of_up_to_five_updates():
    counted, deferred = 0, 0
    for seed in SEEDS:
        for plan, function, order, pairs in orders(seed, "fewest"):
            if derives_all(plan, function, order) and 2 <= len(order.updates) <= 5:
                found = len(deferred_in(plan, function))
                assert found == order.find_fewest(pairs), seed
                counted, deferred = counted + 1, deferred + found
    assert counted > 18
    assert deferred > 12

"""An `after` that has no effect, as W-NO-EFFECT says, can be removed: every op reads the versions that it read."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from compiler import Plan
from graphspec.diagnostics import SpecError
from tests.properties.causality import is_circular
from tests.properties.plans import plan_of
from tests.properties.specs import random_spec


def add_afters(document: Mapping, random: Random) -> dict[str, Mapping]:
    """Return the ops, two of which wait for an earlier write more than they did, where that closes no circle."""
    ops = dict(document["ops"])
    writes = [name for name, op in ops.items() if not {"update", "ema", "copy", "assign"}.isdisjoint(op)]
    for other in random.choices(writes, k=2) if writes else ():
        name = random.choice([each for each in ops if each != other])
        held = {**ops, name: {**ops[name], "after": sorted({*as_list(ops[name].get("after", [])), other})}}
        ops = ops if is_circular(held) else held
    return ops


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def find_read(plan: Plan) -> Mapping[tuple[str, ...], Mapping[str, list[str]]]:
    """Return the versions that instructions of training read, by what fires together and the instruction."""
    return {
        tuple(function["active"]): {each["id"]: each["reads"] for each in function["instructions"] if "reads" in each}
        for function in plan.to_json()["functions"]
    }


def find_needless(seed: int) -> int:
    """Return how many `after` of a spec have no effect, having removed each by itself."""
    random = Random(seed)
    document = random_spec(random)
    ops = add_afters(document, random)
    try:
        plan = plan_of({**document, "ops": ops})
    except SpecError:
        return 0
    needless = [each for each in plan.warnings if each.code == "W-NO-EFFECT"]
    for each in needless:
        other, name = each.message.split("`")[1].removeprefix("after: "), each.message.split("'")[1]
        kept = [one for one in as_list(ops[name]["after"]) if one != other]
        without = plan_of({**document, "ops": {**ops, name: {**ops[name], "after": kept}}})
        assert find_read(without) == find_read(plan), f"{seed}: {each.message}"
    return len(needless)


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, 160, 20))
def test_an_after_without_effect_can_be_removed(first):
    assert sum(find_needless(seed) for seed in range(first, first + 20)) > 0

"""An `after` that has no effect, as W-NO-EFFECT says, can be removed: reads and commit groups are the same."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from compiler import Plan
from graphspec.diagnostics import SpecError
from tests.properties.causality import is_circular
from tests.properties.plans import plan_of
from tests.properties.programs import spell_out
from tests.properties.specs import overflow_spec, random_spec


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


def describe(plan: Plan) -> Mapping[object, Mapping[str, object]]:
    """Return what instructions read and under which verdicts they write, by what fires together and their ids."""
    return {
        (function.active, function.datasets): {
            each.id: (
                {str(read.at) for read in each.reads},
                {frozenset(way) for way in spell_out(each.commits, function)},
            )
            for each in function.instructions
            if each.reads or each.commits
        }
        for function in plan.program.mode("train").functions
    }


def find_needless(seed: int) -> int:
    """Return how many `after` of a spec have no effect, having removed each by itself."""
    random = Random(seed)
    document = overflow_spec(random) if seed % 2 else random_spec(random)
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
        assert describe(without) == describe(plan), f"{seed}: {each.message}"
    return len(needless)


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, 160, 20))
def test_an_after_without_effect_can_be_removed(first):
    assert sum(find_needless(seed) for seed in range(first, first + 20)) > 0

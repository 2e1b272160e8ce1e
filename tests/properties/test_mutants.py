"""Every mutant of the analysis is killed by a property; those that are not change no plan."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.oracle.legality import find_circle
from tests.processes.mutants import MUTANTS as OF_PROCESSES
from tests.properties.killers import PROPERTIES, TESTS, accepts_right, fails, finds_order, flags_right
from tests.properties.mutants import EQUIVALENT, MUTANTS
from tests.properties.outcomes import OUTCOMES
from tests.properties.plans import plan_of
from tests.properties.special import KILLING, SPECIAL, document_of
from tests.properties.specs import random_spec
from tests.properties.test_rejections import codes

ELSEWHERE = [pytest.mark.needs("tensorflow")]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=ELSEWHERE if "TensorFlow" in one.killer else ()) for one in MUTANTS],
)
def test_a_mutant_is_killed_by_its_property(mutant):
    assert not fails(mutant.killer, mutant.spec)
    with mutant.applied():
        assert fails(mutant.killer, mutant.spec)
    assert not fails(mutant.killer, mutant.spec)


@pytest.mark.parametrize("mutants", [MUTANTS, EQUIVALENT, OF_PROCESSES], ids=["killed", "equivalent", "of processes"])
def test_every_mutant_names_something_that_is_there(mutants):
    for one in mutants:
        with one.applied():
            pass


def test_what_is_kept_is_for_a_mutant_and_has_no_seed():
    assert {path.stem for path in KILLING.iterdir()} == {one.name for one in MUTANTS if not one.case}
    assert not SPECIAL.keys() & {one.name for one in MUTANTS if not one.case}


def test_every_property_is_asked_for_by_a_test():
    assert TESTS.keys() == PROPERTIES.keys()
    for test in TESTS.values():
        module, _, name = test.partition(".")
        assert hasattr(import_module(f"tests.properties.{module}"), name)


def test_the_page_tells_every_mutant_and_its_property():
    page = (Path(__file__).parents[2] / "docs" / "correctness.md").read_text(encoding="utf-8")
    rows = [f"| `{one.name}` | {one.says} | {one.killer} | {one.case or 'kept'} |" for one in MUTANTS]
    rows += [f"- `{one.name}`: " for one in EQUIVALENT]
    assert [row for row in rows if row not in page] == []


def compiled(seed: int) -> list[object]:
    """Return all that a backend is told but comments, under two policies, or the codes of the errors."""
    try:
        modes = [mode for order in ("fewest", "listed") for mode in plan_of(document_of(seed), order).program.modes]
    except SpecError as error:
        return sorted(one.code for one in error.diagnostics)
    functions = [function for mode in modes for function in mode.functions]
    return [replace(one, notes=()) for function in functions for one in function.instructions]


@cache
def unchanged(seed):
    """Return what a seed is compiled to without a mutant, which is the same for every mutant."""
    return compiled(seed)


@pytest.mark.sample(2)
@pytest.mark.xdist_group("equivalent mutants")
@pytest.mark.parametrize("mutant", EQUIVALENT, ids=lambda one: one.name)
def test_a_mutant_without_a_killer_changes_no_program(mutant):
    for seed in range(30):
        expected = unchanged(seed)
        with mutant.applied():
            assert compiled(seed) == expected, seed


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
def test_graphs_are_recorded_frozen_and_cut_as_the_definition_says(count):
    assert [seed for seed in range(count) if not flags_right(seed)] == []


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.long)])
def test_a_spec_is_rejected_exactly_where_the_oracle_finds_no_order(count):
    assert [seed for seed in range(count) if not is_ordered(random_spec(Random(seed)))] == []
    assert [name for name in SPECIAL if not finds_order(name)] == []


def is_ordered(document: dict) -> bool:
    """Return whether compiler and oracle say the same of whether a spec has an order."""
    circle = find_circle(load(json.dumps(document) + "\n"))
    return codes(document) == ({"E-TWO-VERSIONS"} if circle else set())


@pytest.mark.parametrize("case", OUTCOMES)
def test_what_is_worked_out_by_hand_comes_of_small_specs(case):
    assert OUTCOMES[case].find() == OUTCOMES[case].wanted


@pytest.mark.parametrize("count", [100, pytest.param(600, marks=pytest.mark.long)])
def test_exactly_those_specs_are_rejected_that_need_two_versions_at_once(count):
    assert [seed for seed in range(count) if not accepts_right(seed)] == []

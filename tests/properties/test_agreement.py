"""Compiled steps give the numbers of the oracle, whatever the order policy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from random import Random

import pytest

from compiler import Plan
from graphspec.diagnostics import SpecError
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import (
    POLICIES,
    Elsewhere,
    Tally,
    find_difference,
    is_single,
    modes_of,
    run,
    run_oracle,
    try_spec,
    try_specs,
)
from tests.properties.execution import Execution
from tests.properties.plans import plan_of
from tests.properties.programs import emit_changed, find_deferred
from tests.properties.special_endings import ENDING
from tests.properties.special_overflow import OVERFLOWING
from tests.properties.specs import random_spec
from tests.properties.tapped import TAPPED

CHUNKS = 50
ELSEWHERE = 4
"""Every so many specs of the second chunk run on TensorFlow too, where it is installed.

Of the first chunk, tests/conformance takes twenty steps.
"""
SILENT = range(11, 100)
"""Seeds from the first of a spec with an update that raises no error where it is written too early."""
ORDERS = ("fewest", "listed", "latest", "memory")
"""The policies, each for the specs of every fourth chunk; a soak tries three on each."""
SPECS = int(os.environ.get("STEPGRAPH_SPECS", "1000"))
"""How many random specs are tried; a smaller number for a quick look."""


def find_other_backend() -> Elsewhere | None:
    """Return what TensorFlow makes of a document, where it is installed."""
    if find_spec("tensorflow") is None:
        return None
    from tests.conformance.random_specs import run_few

    return run_few


@pytest.mark.sample(13)  # with every policy once
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_specs_give_the_numbers_of_the_oracle(chunk):
    seeds = range(chunk * SPECS // CHUNKS, (chunk + 1) * SPECS // CHUNKS)
    tally = try_specs(seeds, (ORDERS[chunk % len(ORDERS)],))
    assert tally.mismatches == []
    assert set(tally.rejected) <= {"E-TWO-VERSIONS", "GS061"}
    assert tally.rejected["GS061"] <= 1  # choices inside choices seldom need more functions than a mode may have
    assert tally.agreed >= 0.8 * tally.specs - 5
    assert tally.executed == tally.agreed


@pytest.mark.needs("tensorflow")
def test_some_of_them_give_the_numbers_of_the_oracle_on_tensorflow_too():
    tally = try_specs(range(SPECS // CHUNKS, 2 * SPECS // CHUNKS, ELSEWHERE), ORDERS[1:2], find_other_backend())
    assert tally.mismatches == []
    assert tally.elsewhere == tally.agreed > 0


def average_an_average(document: dict, random: Random) -> dict | None:
    """Return a spec with an average of one of its hidden averages, listed before or behind it; None without any."""
    ops = document["ops"]
    hidden = [name for name, op in ops.items() if "ema" in op and "into" not in op and "within" not in op]
    if not hidden:
        return None
    source = random.choice(hidden)
    policies = {
        field: ops[source][field] for field in ("buffers", "float_buffers", "int_buffers") if field in ops[source]
    }
    made = {"ema": source, "decay": random.choice([0.7, 0.9, {"kind": "uniform"}]), **policies}
    return {**document, "ops": {"again": made, **ops} if random.random() < 0.6 else {**ops, "again": made}}


@pytest.mark.sample(9)  # with two policies
@pytest.mark.parametrize("chunk", range(16))
def test_averages_of_hidden_averages_are_those_of_the_oracle_wherever_they_are_listed(chunk):
    tally = Tally()
    for seed in range(chunk * 25, (chunk + 1) * 25):
        document = average_an_average(random_spec(seed), Random(seed))
        with suppress(DegenerateError):
            assert document is None or try_spec(document, (ORDERS[chunk % len(ORDERS)],), tally) == "", seed
    assert tally.agreed >= 4
    assert set(tally.rejected) <= {"E-TWO-VERSIONS"}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_gradients_that_overflow_stop_what_the_definition_says(name):
    assert try_spec(OVERFLOWING[name], POLICIES, Tally()) == ""


@pytest.mark.parametrize("name", ENDING)
def test_data_sets_endings_and_what_is_shared_mean_what_the_definition_says(name):
    assert try_spec(ENDING[name], POLICIES, Tally()) == ""


@pytest.mark.parametrize("name", TAPPED)
def test_gradients_by_inner_results_are_those_of_the_definition(name):
    tally = Tally()
    assert try_spec(TAPPED[name], POLICIES, tally, find_other_backend()) == ""
    assert tally.executed


def find_silent_mistakes() -> Iterator[tuple[Plan, list]]:
    """Yield steps that write one update too early without raising anything."""
    for seed in SILENT:
        try:
            plan = plan_of(random_spec(Random(seed)), "listed")
        except SpecError:
            continue
        right = []
        for _, _, program, _ in find_deferred(plan):
            right = right or run(Execution(plan), plan.spec, modes_of(plan))
            with suppress(RuntimeError):
                found = run(Execution(plan, emit_changed(program)), plan.spec, modes_of(plan))
                yield from [(plan, found)] if find_difference(found, right) else []


def test_the_oracle_finds_updates_that_are_written_too_early():
    told = []
    for plan, found in find_silent_mistakes():
        with suppress(DegenerateError):
            meant = run_oracle(plan.spec, Execution(plan).shapes(), modes_of(plan))
            told.append(find_difference(found, meant, is_single(plan.spec)) != "")
        if len(told) == 2:
            break
    assert told == [True] * 2

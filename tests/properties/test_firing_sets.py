"""Every set of ops that fires together in a long run has a function, and no function is for a set that never occurs.

The oracle's clocks say which ops fire in a step; those of the emitted code say which function it calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import pytest
from msgspec.structs import asdict

from compiler import Pace, Plan, compile_step
from compiler.ir.instructions import Accumulate, ResolveOverflow
from compiler.ir.program import Function
from compiler.plan.reachable_functions import find_dispatches
from compiler.timing.gates import find_breaks, find_period
from graphspec.analysis.datasets import find_datasets
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.engine.restore import align_counts
from runtime.support import clocks
from tests.oracle.backs import back_of
from tests.oracle.clocks import Clocks
from tests.oracle.clocks import Pace as OraclePace
from tests.oracle.meaning import WRITERS, Meaning
from tests.properties.idle import wake
from tests.properties.plans import ROWS
from tests.properties.special_endings import ENDING
from tests.properties.specs import random_spec

CHUNKS = 3
SPECS = 90
LONGEST = 400
"""The most steps of a walk."""


@dataclass(kw_only=True)
class Walk:
    """What a walk through two rounds of all clocks has met."""

    problem: str = ""
    met: set[str] = field(default_factory=set)
    """The functions that were called."""
    is_whole: bool = True
    """All steps were walked, there is one order of batches alone, nothing is drawn, and no write may be held.

    Nor is a gate undecided: from the first step on in which it can start with an update, there are functions for both
    sides.
    """


def walk(plan: Plan, epoch: int, random: Random) -> Walk:
    """Walk through two whole rounds of the clocks of a plan, up to the first step that has no function, or another one.

    The batches are of data sets in any order, and gradients are not finite now and then where something judges them.
    """
    program, found = plan.program.mode("train"), Walk()
    functions = {
        (dataset, fired): function
        for function in program.functions
        for fired in [tuple(gate.op for gate in program.gates if gate.op in function.gated)]
        for dataset in function.datasets or ("",)
    }
    meanings = {name: Meaning(plan.spec, "train", name) for name in find_datasets(plan.spec) or ("",)}
    oracle, clock = Clocks(OraclePace(epoch=epoch, rows=ROWS)), clocks.Clock()
    running = clocks.Gates(clock, {"train": [clocks.Gate(**asdict(gate)) for gate in program.gates]}, plan.spec.seed)
    steps = find_breaks(program.gates)[-1] + 2 * find_period(program.gates) * epoch
    listed = [each for function in program.functions for each in function.instructions]
    is_sure = not any(isinstance(each, ResolveOverflow) and each.conditional for each in listed)
    is_drawn = any(gate.draw for gate in program.gates)
    is_sure = is_sure and not program.undecided
    found.is_whole = steps <= LONGEST and len(meanings) == 1 and is_sure and not is_drawn
    turns = list(islice(find_dispatches(program, plan.program), LONGEST))
    is_skipped = False
    for step in range(1, min(steps, LONGEST) + 1):
        dataset = random.choice([*meanings])
        meaning = meanings[dataset]
        firing = meaning.firing(oracle.admit(meaning), oracle.gathering)
        written = {name for name in firing if isinstance(meaning.ops[name], WRITERS) and name in oracle.admitted}
        clock.start("train")
        fired = running.fire("train", dataset or None)
        function = functions.get((dataset, fired))
        if function is None:
            found.problem = f"step {step} of {dataset}: no function for {fired}"
        elif find_written(function) != written:
            found.problem = f"step {step}: {function.name} writes {find_written(function)}, not {sorted(written)}"
        elif find_accumulating(function) != oracle.gathering:
            found.problem = f"step {step}: {function.name} does not gather {sorted(oracle.gathering)}"
        elif turns and not is_skipped and function.name not in turns[step - 1].names:
            found.problem = f"step {step}: {function.name}, which is none of {turns[step - 1].names}"
        if function is None or found.problem:
            return found
        found.met.add(function.name)
        held = find_held(function, random)
        running.hold(frozenset(held))
        is_skipped = is_skipped or bool(held)
        clock.finish()
        oracle.note(meaning, firing, held | set(map(back_of, held)))
    return found


def find_written(function: Function) -> set[str]:
    """Return the writes of a function: its ops, and the models that take their average."""
    return {*function.active, *(each.id for each in function.instructions if each.gate == back_of(each.op))}


def find_accumulating(function: Function) -> set[str]:
    """Return the updates that gather gradients in a function."""
    return {each.op for each in function.instructions if isinstance(each, Accumulate)}


def find_held(function: Function, random: Random) -> set[str]:
    """Return the ops of a function that do not take place, where some of its verdicts are not given."""
    for each in function.instructions:
        if isinstance(each, ResolveOverflow):
            given = {name for _, ways in each.conditional for way in ways for name in way if random.random() < 0.7}
            return {op for op, ways in each.conditional if not any(given.issuperset(way) for way in ways)}
    return set()


def plan_at(document: Mapping, epoch: int) -> Plan:
    """Return the plan of a document whose epochs have some steps, without the clocks that leave no step for a write."""
    awake = wake(deepcopy(dict(document)), OraclePace(epoch=epoch, rows=ROWS))
    return compile_step(load(json.dumps(awake) + "\n"), pace=Pace(epoch=epoch, batch=ROWS))


def walk_at(document: Mapping, epoch: int, seed: int) -> Walk | None:
    """Return the walk through a document whose epochs have some steps, and the functions it never met.

    A write that the compiler says never runs is a problem: the oracle's clocks have run it.
    """
    try:
        plan = plan_at(document, epoch)
    except SpecError as error:
        refused = [each.message for each in error.diagnostics if each.code == "GS120"]
        return Walk(problem=refused[0]) if refused else None
    found = walk(plan, epoch, Random(seed))
    names = {function.name for function in plan.program.mode("train").functions}
    if not found.problem and found.is_whole and found.met != names:
        found.problem = f"no step calls {sorted(names - found.met)}"
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_set_that_fires_together_has_a_function_and_none_is_for_a_set_that_never_does(chunk):
    walks = {}
    for seed in range(chunk * SPECS // CHUNKS, (chunk + 1) * SPECS // CHUNKS):
        walks[seed] = walk_at(random_spec(Random(seed)), Random(seed).choice([1, 2, 3, 5, 7]), seed)
    assert [f"seed {seed}: {found.problem}" for seed, found in walks.items() if found and found.problem] == []
    assert sum(found is not None and found.is_whole for found in walks.values()) > SPECS / CHUNKS / 3


def random_clocks(random: Random) -> dict:
    """Return a document of two small updates and what follows them, with clocks of every kind."""

    def clock(*, starts: float = 0.5) -> dict:
        found: dict = {"every": random.choice([1, 1, 2, 3])}
        found |= {"start": random.randint(1, 9)} if random.random() < starts else {}
        return found | ({"until": random.randint(5, 30)} if random.random() < 0.3 else {})

    ops: dict = {}
    models: dict = {name: {"layers": [{"linear": 1}], "optimizer": "sgd"} for name in "ab"}
    for name in "ab":
        ops[f"fit_{name}"] = {"loss": "mse", "inputs": [f"out_{name}", 0.5]}
        ops[f"out_{name}"] = {"forward": name, "inputs": "x"}
        window = {"steps": random.randint(1, 4), "on_epoch_end": random.choice(["carry", "flush", "drop"])}
        ops[f"step_{name}"] = {"update": name, "loss": f"fit_{name}", "accumulate": window, **clock()}
    ops["average"] = {"ema": "a", "decay": 0.9, **clock(starts=0.3)}
    ops["beside"] = {"ema": random.choice("ab"), "decay": 0.9, **clock(starts=0.3)}
    for name, moment in (("average", "start"), ("beside", "until")):
        if random.random() < 0.3:
            ops[name][moment] = f"{random.randint(5, 12)} updates"
    if random.random() < 0.5:
        ops["step_b"]["every"] = "step_a"
    if random.random() < 0.3:
        ops["step_b"]["dataset"], ops["step_a"]["dataset"] = "one", random.choice(["two", ["one", "two"]])
    if random.random() < 0.3:
        unit = random.choice(["steps", "updates"])
        models["a"]["groups"] = [{"match": ".", "frozen": {"until": f"{random.randint(1, 12)} {unit}"}}]
    if random.random() < 0.3:
        models["b"]["optimizer"] = {1: "sgd", random.randint(2, 4): "adam"}
    fields = {"precision": {"loss_scale": "dynamic"}} if random.random() < 0.3 else {}
    if fields and isinstance(ops["step_b"]["every"], str):
        ops["step_b"]["accumulate"]["on_epoch_end"] = random.choice(["carry", "drop"])
    inputs = {"x": {"shape": ["batch", 4]}}
    return {"graphspec": 1, "name": "clocks", "inputs": inputs, "models": models, "ops": ops, **fields}


def walk_clocks(seed: int) -> Walk | None:
    """Return the walk through a document of random clocks."""
    random = Random(seed)
    return walk_at(random_clocks(random), random.randint(1, 9), seed)


@pytest.mark.long
def test_so_it_is_for_clocks_of_every_kind():
    walks = {seed: walk_clocks(seed) for seed in range(100)}
    assert [f"seed {seed}: {found.problem}" for seed, found in walks.items() if found and found.problem] == []
    assert sum(found is not None for found in walks.values()) > 50
    assert sum(found is not None and found.is_whole for found in walks.values()) > 20


def find_functions(plan: Plan) -> set[tuple[str, tuple[str, ...]]]:
    """Return the data sets and gates that a step can be called with in training."""
    program = plan.program.mode("train")
    return {
        (dataset, tuple(gate.op for gate in program.gates if gate.op in function.gated))
        for function in program.functions
        for dataset in function.datasets or ("",)
    }


def run_clocks(plan: Plan, running: clocks.Gates, steps: int, random: Random) -> set[tuple[str, tuple[str, ...]]]:
    """Return what fires in the next steps of training, on batches of any data set."""
    found = set()
    for _ in range(steps):
        dataset = random.choice(find_datasets(plan.spec) or ("",))
        running.clock.start("train")
        found.add((dataset, running.fire("train", dataset or None)))
        running.clock.finish()
    return found


def gates_of(plan: Plan) -> clocks.Gates:
    """Return the gates of the emitted code in training, before the first step."""
    listed = [clocks.Gate(**asdict(gate)) for gate in plan.program.mode("train").gates]
    return clocks.Gates(clocks.Clock(), {"train": listed})


@pytest.mark.parametrize("count", [20, pytest.param(120, marks=pytest.mark.long)])
def test_counts_of_other_clocks_let_nothing_fire_together_that_has_no_function(count):
    aligned = 0
    for seed in range(count):
        random = Random(seed)
        before, after = (plan_at(random_clocks(Random(each)), random.randint(1, 9)) for each in (seed, seed + 1))
        old, new = gates_of(before), gates_of(after)
        run_clocks(before, old, random.randint(1, 40), random)
        new.counts["train"].update({op: n for op, n in old.counts["train"].items() if op in new.counts["train"]})
        new.clock.steps.update(old.clock.steps)
        applied = {op: n for op, n in old.applied["train"].items() if op in new.applied["train"]}
        new.applied["train"].update(applied)
        restored = dict(new.counts["train"])
        align_counts(after.program, new.clock.steps, new)
        aligned += restored != new.counts["train"]
        assert run_clocks(after, new, 100, random) <= find_functions(after), seed
    assert aligned > count / 8


def test_counts_that_are_possible_stay_as_they_are():
    for seed in range(20):
        plan = plan_at(random_clocks(Random(seed)), 5)
        running = gates_of(plan)
        run_clocks(plan, running, seed, Random(seed))
        counts = dict(running.counts["train"])
        align_counts(plan.program, running.clock.steps, running)
        assert running.counts["train"] == counts, seed


@pytest.mark.parametrize("name", ENDING)
def test_so_it_is_where_windows_end_with_epochs(name):
    found = [walk_at(ENDING[name], epoch, epoch) for epoch in (1, 2, 3, 5, 7)]
    assert [one.problem for one in found if one and one.problem] == []

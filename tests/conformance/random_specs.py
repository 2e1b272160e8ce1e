"""Random specs on both backends, and against the oracle: ``python -m tests.conformance.random_specs COUNT``."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import numpy as np

from compiler import Plan, compile_step
from graphspec.declare.ops import LossOp
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime import build
from tests.conformance.execution import TensorFlowExecution, running
from tests.conformance.users import make_models
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import (
    Record,
    batches,
    codes_of,
    complete,
    find_difference,
    find_error,
    find_turns,
    hangs_on_rounding,
    is_single,
    is_small,
    is_vague,
    observe,
    run_oracle,
)
from tests.properties.agreement import run as take
from tests.properties.execution import Execution
from tests.properties.plans import PACE
from tests.properties.planting import LAST, is_planted
from tests.properties.specs import base_spec, random_spec
from tests.properties.verdicts import EXPECTED, MANY, may_need_many

STEPS, FIRST = 20, 3
"""How many steps are taken, and how many of them the oracle takes too."""
TOLERANCE = 1e-10
"""Relative to the greatest element, at least 1."""
SINGLE = 1e-6
"""Of what is of single precision on both backends: accuracy."""
LAST_BITS = 2.0**-51
OURS, THEIRS = "tests.properties.users:", "tests.conformance.users:"

Values = Mapping[str, np.ndarray]
Executed = TypeVar("Executed", Execution, TensorFlowExecution)
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
Make = Callable[[Random], dict]


@dataclass(kw_only=True)
class Tally:
    """What came of many specs."""

    agreed: int = 0
    as_graphs: int = 0
    degenerate: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """What must not be: numbers that differ, and specs rejected for what they do not have."""


def try_specs(seeds: Iterable[int], graphs: int = 10, make: Make = random_spec) -> Tally:
    """Compare random specs on both backends; one in ``graphs`` runs as graphs, the others eagerly."""
    tally = Tally()
    for seed in seeds:
        try:
            plans = plans_of(seed, make)
        except SpecError as error:
            codes = codes_of(error)
            tally.rejected[codes] += 1
            is_expected = codes == EXPECTED or (codes in MANY and may_need_many(load(json.dumps(make(Random(seed))))))
            tally.failures += [f"seed {seed}: rejected: {codes}"] * (not is_expected)
            continue
        is_graph = seed % graphs == 0
        try:
            with running(eagerly=not is_graph):
                found = compare(plans["torch"], plans["tensorflow"])
        except DegenerateError as error:
            tally.degenerate[str(error)] += 1
            continue
        tally.agreed += not found
        tally.as_graphs += is_graph and not found
        tally.failures += [f"seed {seed}: {found}"] * bool(found)
    return tally


def plans_of(seed: int, make: Make = random_spec) -> Mapping[str, Plan]:
    """Return the plans of a random spec; raise SpecError where it has none."""
    return {name: plan_for(name, seed, make=make) for name in ("torch", "tensorflow")}


def plan_for(backend: str, seed: int, order: str = "fewest", make: Make = random_spec) -> Plan:
    """Return the plan of a random spec for a backend; raise SpecError where it has none."""
    document = {**make(Random(seed)), "rng": "portable"}
    text = json.dumps(per_backend(document) if backend == "tensorflow" else document)
    return compile_step(load(text + "\n"), backend, order, pace=PACE)


def per_backend(value: object) -> object:
    """Return a document whose user's code is there for both backends."""
    match value:
        case {"class": kind} if kind == f"{OURS}Keeper":
            return _bring(value)
        case dict():
            return {key: per_backend(each) for key, each in value.items()}
        case list():
            return [per_backend(each) for each in value]
        case str() if value.startswith(OURS):
            return {"torch": value, "tensorflow": value.replace(OURS, THEIRS)}
        case _:
            return value


def _bring(model: Mapping[str, Any]) -> dict[str, object]:
    """Return a model whose layer brings its penalties and constraint along, on TensorFlow; the spec says nothing."""
    own = {each["match"]: {key: each[key] for key in each if key != "match"} for each in model["regularizer"]}
    terms = {"weight": own.get("weight", {}), "bias": own.get("bias", {}), "constraint": model.get("constraint", "")}
    rest = {key: per_backend(each) for key, each in model.items() if key not in ("class", "regularizer", "constraint")}
    return {
        **rest,
        "class": {"torch": f"{OURS}Keeper", "tensorflow": f"{THEIRS}Keeper"},
        "args": {**model["args"], **terms},
    }


def complete_plan(plan: Plan) -> Plan:
    """Return a plan for TensorFlow with what a build finds out of layers that bring terms of their own."""
    if all(model.class_path("tensorflow") != f"{THEIRS}Keeper" for model in plan.spec.models.values()):
        return plan
    called = {model.name for model in plan.program.models}
    given = {name: model for name, model in make_models(plan.spec).items() if name in called}
    return build(plan, device="cpu", dtype="float64", models=given, allow=["tests"]).plan


def compare(theirs: Plan, ours: Plan) -> str:
    """Return the first difference of TensorFlow from PyTorch in twenty steps, or from the oracle in a few."""
    tensorflow = run(TensorFlowExecution(complete_plan(ours)), ours)
    execution = Execution(theirs)
    torch = run(execution, theirs)
    tolerance, loose = SINGLE if is_single(theirs.spec) else TOLERANCE, is_planted(theirs.spec, "late")
    apart = find_apart(tensorflow, torch, tolerance, loose)
    if not is_tame(theirs, torch):
        raise DegenerateError("not finite, or too large")
    if apart:
        if goes_by_directions(theirs) and _has_rounding(theirs):
            raise DegenerateError("a rule goes by directions, and a loss is nothing but rounding")
        # A number that is zero up to rounding may be exactly zero on one of them.
        if find_apart(run(disturbed(Execution(theirs)), theirs), torch, tolerance, loose):
            raise DegenerateError("PyTorch itself says something else of weights with other last bits")
        if find_apart(run(disturbed(TensorFlowExecution(complete_plan(ours))), ours), tensorflow, tolerance, loose):
            raise DegenerateError("TensorFlow itself says something else of weights with other last bits")
        return f"from PyTorch: {apart}"
    return against_oracle(theirs, execution.shapes(), tensorflow)


def against_oracle(plan: Plan, shapes: Shapes, found: Sequence[tuple[Values, Mapping[str, Values]]]) -> str:
    """Return the first difference of the first steps from the oracle, which shares no code with either backend."""
    told = plan.spec, shapes, ["train"] * FIRST
    meant = run_oracle(*told)
    loose = is_planted(plan.spec, "late")
    mismatch = find_difference(complete(found[:FIRST], meant), meant, is_single(plan.spec), loose)
    if mismatch and (hangs_on_rounding(*told, meant) or is_vague(*told)):
        raise DegenerateError("the oracle itself says something else of weights with other last digits")
    return mismatch and f"from the oracle: {mismatch}"


def run_few(document: Mapping[str, object], modes: Sequence[str], order: str = "fewest") -> Record:
    """Return outputs and state after steps of some modes on TensorFlow, without a graph."""
    plan = compile_step(load(json.dumps(per_backend(document)) + "\n"), "tensorflow", order, pace=PACE)
    with running(eagerly=True):
        return take(TensorFlowExecution(complete_plan(plan), swift=True), plan.spec, modes)


def run(execution: Execution | TensorFlowExecution, plan: Plan) -> list[tuple[Values, Mapping[str, Values]]]:
    """Return the outputs of twenty steps of training and two of evaluation, and the state after each.

    Where weights overflow, the steps end with that in which they do.
    """
    modes = ["train"] * STEPS + ["eval"] * 2 * any(program.mode == "eval" for program in plan.program.modes)
    modes = modes[:LAST] if is_planted(plan.spec, "late") else modes
    pairs = zip(find_turns(plan.spec, modes), batches(plan.spec), strict=False)
    return [(execution.step(batch, *turn), observe(execution)) for turn, batch in pairs]


def disturbed(execution: Executed) -> Executed:
    """Change the last bits of all weights."""
    noise = np.random.default_rng(1)
    for model in execution.models.values():
        # Modules of PyTorch and ours have parameters, layers of Keras variables.
        values = model.parameters() if hasattr(model, "parameters") else model.trainable_variables
        for value in values:
            factor = 1 + LAST_BITS * float(noise.choice([-1, 1]))
            if isinstance(execution, TensorFlowExecution):
                value.assign(value * factor)
            else:
                value.data *= factor
    return execution


def is_tame(plan: Plan, record: Sequence[tuple[Values, Mapping[str, Values]]]) -> bool:
    """Return whether all numbers are finite and not huge, but for what follows from a planted overflow."""
    calm = record[: LAST - 1] if is_planted(plan.spec, "late") else record
    states = [array for _, state in calm for part in state for array in state[part].values() if part != "counted"]
    outputs = [array for values, _ in record for array in values.values()]
    finite = states if is_planted(plan.spec) else [*states, *outputs]
    return all(np.isfinite(array).all() for array in finite) and all(map(is_small, (*states, *outputs)))


def goes_by_directions(plan: Plan) -> bool:
    """Return whether an optimizer of a plan goes by the signs of gradients, or divides them by their size."""
    return any(each.rule in ("lion", "rprop", "lars", "lamb", "adafactor", "muon") for each in plan.program.optimizers)


def _has_rounding(plan: Plan) -> bool:
    """Return whether some loss of a plan, terms of others included, becomes nothing but rounding."""
    losses = [name for name, op in plan.spec.ops.items() if isinstance(op, LossOp)]
    outputs = tuple(dict.fromkeys((*(plan.spec.outputs or ()), *losses)))
    watched = compile_step(plan.spec.model_copy(update={"outputs": outputs}), "torch", "fewest", pace=PACE)
    record = run(Execution(watched), watched)
    return any(is_rounding(value) for values, _ in record for value in values.values())


def is_rounding(value: np.ndarray) -> bool:
    """Return whether a number is below the last bit of 1: the slope of a loss that is so small is zero on one backend.

    PyTorch gives ``sigmoid(x) - 1`` as 0 from x = 37 on, TensorFlow as what it is. Other last bits change neither.
    """
    return value.size == 1 and 0 < abs(float(value.reshape(-1)[0])) < 2.0**-52


def find_apart(found: Sequence, meant: Sequence, tolerance: float, loose: bool = False) -> str:
    """Return the first value that two runs do not have in common; ``loose``: of what is finite in the second."""
    for (number, ours), (_, theirs) in zip(flat(found), flat(meant), strict=True):
        lacking = {name for name in theirs.keys() - ours.keys() if not name.endswith(".second.weight")}
        if lacking or ours.keys() - theirs.keys():
            return f"step {number}: {sorted(lacking or ours.keys() - theirs.keys())} on one backend alone"
        for name, value in ours.items():
            error = find_error(value, theirs[name], loose)
            if not error <= tolerance:
                return f"step {number}: {name} is off by {error:.1e}"
    return ""


def flat(record: Sequence[tuple[Values, Mapping[str, Values]]]) -> Iterator[tuple[int, Values]]:
    """Yield outputs and state of every step by name, with its number."""
    for number, (outputs, state) in enumerate(record, 1):
        yield (
            number,
            {**outputs, **{f"{model}.{name}": each for model, one in state.items() for name, each in one.items()}},
        )


def main() -> int:
    """Compare as many as wished, and print what came of it; return 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--graphs", type=int, default=10, help="one in so many runs as graphs")
    parser.add_argument("--base", action="store_true", help="specs of the first parts of the language alone")
    wanted = parser.parse_args()
    tally = Tally()
    for seed in range(wanted.first, wanted.first + wanted.count):
        one = try_specs([seed], wanted.graphs, base_spec if wanted.base else random_spec)
        tally.agreed, tally.as_graphs = tally.agreed + one.agreed, tally.as_graphs + one.as_graphs
        tally.degenerate += one.degenerate
        tally.rejected += one.rejected
        tally.failures += one.failures
        print(*one.failures, sep="\n", end="\n" * bool(one.failures), flush=True)
    print(tally)
    print(*tally.failures, sep="\n", end="\n" * bool(tally.failures))
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())

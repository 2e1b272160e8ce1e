"""Compare a compiled step with the oracle: a few steps of training, then one of evaluation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from random import Random

import numpy as np
from msgspec.structs import replace

from compiler import Plan, compile_step
from graphspec.analysis.datasets import find_datasets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MetricOp
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.oracle.optimizers import DegenerateError
from tests.oracle.oracle import Oracle
from tests.properties import micro_batches, sequences
from tests.properties.execution import Execution
from tests.properties.plans import PACE, ROWS
from tests.properties.planting import LAST, find_reached, is_planted, plant
from tests.properties.specs import random_spec
from tests.properties.written import write_shorter

POLICIES = ("fewest", "listed", "latest")
TOLERANCE = 1e-9
"""Relative to the greatest element, at least 1: rounding of 1e-16, amplified by a few steps of training."""
SINGLE = 1e-6
"""With nadam, of which PyTorch keeps one factor in float32, and accuracy, which is a float32."""
JITTER = 1e-13
DIGIT = 1e-15
"""Relative: a few of the last digits of a float64."""
HUGE = 1e6
"""Beyond this, training has diverged, and rounding with it."""

Values = Mapping[str, np.ndarray]
State = Mapping[str, Values]
Record = list[tuple[Values, State]]
"""Outputs and state after every step."""
Elsewhere = Callable[[Mapping[str, object], Sequence[str]], Record]
"""What another backend makes of a document, in steps of some modes."""


@dataclass(kw_only=True)
class Tally:
    """What came of many specs."""

    specs: int = 0
    agreed: int = 0
    executed: int = 0
    """Programs that ran."""
    elsewhere: int = 0
    """Specs that ran on another backend too."""
    same: int = 0
    """Plans of another policy whose program is the same as one that ran."""
    degenerate: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)


def try_specs(seeds: Iterable[int], policies: Sequence[str] = POLICIES, elsewhere: Elsewhere | None = None) -> Tally:
    """Compare random specs with the oracle, under every policy, and on another backend if there is one."""
    tally = Tally()
    for seed in seeds:
        tally.specs += 1
        document, before = random_spec(Random(seed)), (tally.executed, tally.same, tally.elsewhere)
        try:
            mismatch = try_spec(document, policies, tally, elsewhere)
        except DegenerateError:  # also behind programs that were run: they count for nothing
            tally.degenerate += 1
            tally.executed, tally.same, tally.elsewhere = before
            continue
        if mismatch:
            tally.mismatches.append(f"seed {seed}: {mismatch}")
    return tally


def try_spec(
    document: Mapping[str, object], policies: Sequence[str], tally: Tally, elsewhere: Elsewhere | None = None
) -> str:
    """Return the first difference between one document's plans and the oracle; nothing where they agree.

    What is compiled is written shorter, with expressions and blocks; the oracle is given what these mean.
    """
    spec, shorter = (load(json.dumps(each) + "\n") for each in (document, write_shorter(document)))
    try:
        plans = [compile_step(shorter, "torch", policy, pace=PACE) for policy in policies]
    except SpecError as error:
        tally.rejected[codes_of(error)] += 1
        if "GS120" in codes_of(error):  # the oracle's clocks let every write of a random spec run
            return str(error).splitlines()[0]
        try:
            compile_step(spec, "torch", policies[0], pace=PACE)
        except SpecError as other:
            return "" if codes_of(other) == codes_of(error) else f"{codes_of(error)}, not {codes_of(other)}"
        return f"{codes_of(error)}, only as it is written shorter"
    try:
        mismatch = compare(
            spec, plans, tally, None if elsewhere is None else partial(elsewhere, write_shorter(document))
        )
    except RuntimeError as error:
        mismatch = f"raised {error}"
    tally.agreed += not mismatch
    return mismatch


def compare(
    spec: GraphSpec, plans: Sequence[Plan], tally: Tally, elsewhere: Callable[[Sequence[str]], Record] | None = None
) -> str:
    """Return the first difference between plans of one spec, or what another backend makes of it, and the oracle."""
    meant: Record = []
    programs = []
    for plan in plans:
        program = replace(plan.program, order="")
        if program in programs:
            tally.same += 1
            continue
        programs.append(program)
        execution = Execution(plan)
        told = spec, execution.shapes(), modes_of(plan)
        meant = meant or run_oracle(*told)
        found = run(execution, spec, modes_of(plan))
        tally.executed += 1
        mismatch = judge(told, found, meant)
        if mismatch:
            return f"{plan.program.order}: {mismatch}"
    if elsewhere is None:
        return ""
    found = complete(elsewhere(told[2]), meant)
    tally.elsewhere += 1
    mismatch = judge(told, found, meant)
    return mismatch and f"elsewhere: {mismatch}"


def judge(told: tuple[GraphSpec, Mapping, Sequence[str]], found: Record, meant: Record) -> str:
    """Return where numbers differ from those of the oracle; raise DegenerateError where that says nothing."""
    spec = told[0]
    loose = is_planted(spec, "late")
    mismatch = find_difference(found, meant, is_single(spec), loose)
    if mismatch and hangs_on_rounding(*told, meant):
        raise DegenerateError("rounding alone changes the numbers")
    if mismatch and is_vague(*told) and not find_difference(found, meant, True, loose):
        raise DegenerateError("a little off, after a gradient that may be pure rounding")
    return mismatch


def complete(found: Record, meant: Record) -> Record:
    """Return what was found with what a framework lists once and the oracle under two names."""
    return [
        (outputs, {model: {**wanted_state[model], **one} for model, one in state.items()})
        for (outputs, state), (_, wanted_state) in zip(found, meant, strict=True)
    ]


def is_single(spec: GraphSpec) -> bool:
    """Return whether something in a spec is of single precision whatever the parameters are: accuracy."""
    return any(op.metric.name("torch") == "accuracy" for op in spec.ops.values() if isinstance(op, MetricOp))


def modes_of(plan: Plan) -> list[str]:
    """Return the modes of the steps that are taken: three of training, one of evaluation."""
    return ["train"] * 3 + ["eval"] * any(program.mode == "eval" for program in plan.program.modes)


def run(
    execution: Execution, spec: GraphSpec, modes: Sequence[str], *, overflows: bool = True
) -> list[tuple[Values, State]]:
    """Return the outputs and the state after every step, with planted overflows or without."""
    return list(take(execution, spec, modes, overflows=overflows))


def take(
    execution: Execution, spec: GraphSpec, modes: Sequence[str], *, overflows: bool = True
) -> Iterator[tuple[Values, State]]:
    """Take steps one by one; yield the outputs of each, and the state after it."""
    pairs = zip(find_turns(spec, modes), batches(spec, overflows=overflows), strict=False)
    yield from ((execution.step(batch, *turn), observe(execution)) for turn, batch in pairs)


def observe(execution: Execution) -> State:
    """Return the state after a step, with what is counted."""
    return {**execution.state(), "counted": execution.counters()}


def find_turns(spec: GraphSpec, modes: Sequence[str]) -> list[tuple[str, ...] | tuple[str, str | None]]:
    """Return the modes of some steps; where a spec has data sets, with those that their batches take turns to be of."""
    names = find_datasets(spec)
    turns = zip(modes, cycle(names), strict=False) if names else ()
    told = [(mode, name if mode == "train" else None) for mode, name in turns]
    return told or [(mode,) for mode in modes]


def hangs_on_rounding(spec: GraphSpec, shapes: Mapping, modes: Sequence[str], meant: Sequence) -> bool:
    """Return whether the oracle itself says something else of weights that differ in their last digits.

    So it is where a loss has its kink at equal values.
    """
    others = (run_oracle(spec, shapes, modes, jitter=one) for one in (1, 2))
    return any(find_difference(other, meant, is_single(spec)) for other in others)


def is_vague(spec: GraphSpec, shapes: Mapping, modes: Sequence[str]) -> bool:
    """Return whether a rule divides a gradient that may be zero up to rounding by its own size."""
    oracle = Oracle(spec, shapes)
    with np.errstate(all="ignore"):
        for turn, batch in zip(find_turns(spec, modes), batches(spec), strict=False):
            oracle.step(batch, *turn)
    return oracle.is_vague


def blur(value: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """Return an array with noise in its last digits; zeros that a constraint made of other numbers have some too."""
    return value + JITTER * np.maximum(np.abs(value), 1e-3) * noise.normal(size=value.shape)


def run_oracle(
    spec: GraphSpec, shapes: Mapping, modes: Sequence[str], *, jitter: int = 0
) -> list[tuple[Values, State]]:
    """Return what the oracle says; raise DegenerateError where it says nothing that could be compared.

    ``jitter`` seeds noise in the last digits of the weights before every step, and of calls of layers; 0 is none.
    """
    oracle, noise = Oracle(spec, shapes), np.random.default_rng(jitter)
    found = []
    with np.errstate(all="ignore"):
        for turn, batch in zip(find_turns(spec, modes), batches(spec), strict=False):
            if jitter:
                oracle.disturb(lambda value: blur(value, noise), lambda shape: 1 + DIGIT * noise.normal(size=shape))
            found.append((oracle.step(batch, *turn), {**oracle.state, "counted": oracle.counters}))
            if not is_tame(oracle, batch, *found[-1]):
                raise DegenerateError("not finite, or too large")
    return found


def is_tame(oracle: Oracle, batch: Values, outputs: Values, state: State) -> bool:
    """Return whether all numbers of a step are finite and not huge, but for what follows from a planted overflow."""
    if is_planted(oracle.spec, "late") and oracle.clocks.steps["train"] >= LAST:
        return all(map(is_small, outputs.values()))
    reached = find_reached(oracle.spec, batch)
    numbers = [array for name, array in outputs.items() if name not in reached]
    numbers += [array for part, one in state.items() if part != "counted" for array in one.values()]
    judged = oracle.last.verdicts.found.items()
    is_finite = all(np.isfinite(array).all() for array in numbers) and all(
        ok or name.partition(" ")[0] in reached for name, ok in judged
    )
    return is_finite and all(map(is_small, (*numbers, *outputs.values())))


def is_small(array: np.ndarray) -> bool:
    """Return whether no finite element of an array is huge."""
    return np.abs(array[np.isfinite(array)]).max(initial=0) < HUGE


def batches(spec: GraphSpec, *, overflows: bool = True) -> Iterator[Values]:
    """Yield batches of normal numbers, of classes, and of ones with planted overflows, unless there are to be none."""
    generator, size = np.random.default_rng(5), spec.inputs["x"].shape[1]
    rows = ROWS if spec.micro_batches == 1 else micro_batches.ROWS
    for number in count(1):
        batch = {
            name: generator.integers(0, size, rows) if one.dtype == "int64" else generator.normal(size=(rows, *more))
            for name, one in spec.inputs.items()
            for more in [(sequences.find_length(number), size) if len(one.shape or ()) > 2 else (size,)]
        }
        yield plant(batch, spec.seed, number if overflows else 0)


def find_difference(found: Sequence, meant: Sequence, single: bool = False, loose: bool = False) -> str:
    """Return where outputs or states differ; ``loose``: what is not finite in the second may be anything."""
    for number, ((outputs, state), (wanted, wanted_state)) in enumerate(zip(found, meant, strict=True), 1):
        if outputs.keys() != wanted.keys():
            return f"step {number} returns {sorted(outputs)}, not {sorted(wanted)}"
        seen, told = _flatten(outputs, state), _flatten(wanted, wanted_state)
        for name, value in told.items():
            error = find_error(seen[name], value, loose)
            if not error < (SINGLE if single else TOLERANCE):
                return f"step {number}: {name} is off by {error:.1e}"
    return ""


def find_error(found: np.ndarray, meant: np.ndarray, loose: bool) -> float:
    """Return the greatest difference, relative to the greatest element, at least 1, of what is finite."""
    finite = np.isfinite(meant)
    if found.shape != meant.shape or (not loose and (np.isfinite(found) != finite).any()):
        return np.inf
    return np.abs(found[finite] - meant[finite]).max(initial=0) / max(1.0, np.abs(meant[finite]).max(initial=0))


def _flatten(outputs: Values, state: State) -> Values:
    return {**outputs, **{f"{model}.{name}": array for model, one in state.items() for name, array in one.items()}}


def codes_of(error: SpecError) -> str:
    """Return the codes of the errors."""
    return ", ".join(sorted({one.code for one in error.diagnostics if one.severity == "error"}))

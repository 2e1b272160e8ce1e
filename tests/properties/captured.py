"""Random specs, captured as graphs: ``python -m tests.properties.captured COUNT [--eager] [--inductor] [--specs all]``.

Their numbers are compared with those of the oracle, or for more steps with eager ones, slots of optimizers included.
Graphs run the operations that Dynamo has found as they are, or what Inductor makes of them. With ``--recorded`` graphs
that are recorded and replayed, by the rules of CUDA graphs, are compared with the same that are not, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from compiler import Plan, compile_step
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime import Step, build
from runtime.backends.torch import capture
from runtime.backends.torch.codegen.graph import GraphDialect
from tests.backends.torch.recorder import HostRecorder
from tests.oracle.optimizers import DegenerateError
from tests.properties import agreement
from tests.properties.agreement import (
    SINGLE,
    TOLERANCE,
    Record,
    batches,
    codes_of,
    find_error,
    find_turns,
    is_single,
    is_small,
    modes_of,
)
from tests.properties.execution import Execution
from tests.properties.plans import PACE
from tests.properties.specs import base_spec, overflow_spec, random_spec
from tests.properties.users import make_models

INSIDE = frozenset(GraphDialect.direct)
"""The rules of optimizers that a graph can hold."""
STEPS, MORE = 3, 9
"""How often the modes of a spec are gone through: in a comparison with eager steps, and of recordings."""


Write = Callable[[Random], Any]
WRITERS: Mapping[str, Write] = {"base": base_spec, "overflow": overflow_spec, "all": random_spec}
"""What specs have: the first parts of the language, also gradients that are not finite, or everything."""


@dataclass(kw_only=True)
class Tally:
    """What came of many specs."""

    agreed: int = 0
    """Specs with at least one graph whose numbers are right."""
    uncaptured: int = 0
    """Specs without a graph whose numbers are right."""
    unjudged: int = 0
    """Specs whose numbers say nothing: they overflow, or hang on rounding."""
    graphs: int = 0
    """Functions that were captured, and compiled no more than once."""
    recorded: int = 0
    """Recordings that were made of graphs."""
    eager: Counter[str] = field(default_factory=Counter)
    """Why functions ran eagerly, as often as they did."""
    rejected: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)

    def reject(self, seed: int, error: SpecError) -> None:
        """Count a spec that was rejected; a step that failed is a mismatch."""
        if "GS211" in codes_of(error):
            self.mismatches.append(f"seed {seed}: {error}")
        self.rejected[codes_of(error)] += 1

    def add(self, other: Tally) -> None:
        """Add what came of other specs."""
        self.agreed += other.agreed
        self.uncaptured += other.uncaptured
        self.unjudged += other.unjudged
        self.graphs += other.graphs
        self.recorded += other.recorded
        self.eager += other.eager
        self.rejected += other.rejected
        self.mismatches += other.mismatches


class CapturedExecution(Execution):
    """A plan that runs as graphs, and shows its numbers as an emitted file does."""

    def __init__(self, plan: Plan) -> None:
        called = {model.name for model in plan.program.models}
        self.device = "cpu"
        given = {name: each for name, each in make_models(plan.spec, torch.float64).items() if name in called}
        self.built = make(plan, "step", given)
        self.names = self.built._built.engine.loaded.names  # pyright: ignore[reportAttributeAccessIssue]
        self.models = self.built.models  # pyright: ignore[reportIncompatibleVariableOverride]


@contextmanager
def running(inductor: bool) -> Iterator[None]:
    """Compile with Inductor, or run the operations of a graph one by one; what is not recorded is an error."""
    before = capture.COMPILER
    capture.COMPILER = "inductor" if inductor else lambda graph, inputs: graph.forward
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".* is not recorded ")
            yield
    finally:
        capture.COMPILER = before
        torch._dynamo.reset()


def judge_specs(seeds: Iterable[int], write: Write = base_spec, *, inductor: bool = False) -> Tally:
    """Compare captured steps of random specs with the oracle; eager ones of the emitted files are compared, too."""
    tally = Tally()
    for seed in seeds:
        mine, theirs = Tally(), agreement.Tally()
        try:
            with running(inductor):
                mismatch = agreement.try_spec(direct(write(Random(seed))), ("fewest",), theirs, partial(run, mine))
        except DegenerateError:
            tally.unjudged += 1
            continue
        except SpecError as error:  # of a build
            tally.reject(seed, error)
            continue
        tally.add(Tally(mismatches=[f"seed {seed}: {mismatch}"]) if mismatch else mine)
        tally.rejected += theirs.rejected
    return tally


def run(tally: Tally, document: Mapping[str, object], modes: Sequence[str]) -> Record:
    """Return what a captured step makes of a document, and count its graphs."""
    plan = compile_step(load(json.dumps(document) + "\n"), "torch", pace=PACE)
    execution = CapturedExecution(plan)
    record = agreement.run(execution, plan.spec, modes)
    problem = count(execution.built, tally)
    if problem:
        raise RuntimeError(problem)
    return record


def try_specs(
    seeds: Iterable[int], write: Write = base_spec, *, inductor: bool = False, recorded: bool = False
) -> Tally:
    """Compare captured steps of random specs with eager ones; those with recordings with the same graphs without."""
    tally = Tally()
    for seed in seeds:
        recorder = HostRecorder()
        with running(inductor):
            try:
                document = direct(write(Random(seed)))
                plan = compile_step(load(json.dumps(document) + "\n"), "torch", pace=PACE)
                known = make(plan, "step" if recorded else None)
                with patch.object(capture, "find_recorder", return_value=recorder if recorded else None):
                    step = make(plan, "step")
            except SpecError as error:
                tally.reject(seed, error)
                continue
            found = compare(known, step, tally, *((MORE, 0.0) if recorded else (STEPS, TOLERANCE)))
        tally.mismatches += [f"seed {seed}: {found}"] * bool(found)
        tally.recorded += recorder.recorded
    return tally


def direct(value: Any) -> Any:
    """Return a document with Adam in place of the optimizers that no graph can hold."""
    match value:
        case {"optimizer": dict(rule)} if rule.get("name") not in INSIDE:
            return {**direct({**value, "optimizer": ""}), "optimizer": {"name": "adam", "lr": 0.01}}
        case {"optimizer": str(rule)} if rule and rule not in INSIDE:
            return {**direct({**value, "optimizer": ""}), "optimizer": "adam"}
        case dict():
            return {key: direct(each) for key, each in value.items()}
        case list():
            return [direct(each) for each in value]
        case _:
            return value


def make(plan: Plan, jit: Any, models: Mapping[str, torch.nn.Module] | None = None) -> Step:
    """Return the step of a plan."""
    return build(plan, device="cpu", dtype="float64", allow=["tests"], jit=jit, models=models)


def compare(known: Step, captured: Step, tally: Tally, rounds: int, tolerance: float) -> str:
    """Return the first difference of a captured step from another; nothing where they agree."""
    spec = known.spec
    tolerance = SINGLE if tolerance and is_single(spec) else tolerance
    turns = find_turns(spec, modes_of(known.plan) * rounds)
    for number, (turn, batch) in enumerate(zip(turns, batches(spec), strict=False), 1):
        outputs, theirs = (take(step, batch, turn) for step in (captured, known))
        pairs = [(outputs, theirs), (outputs, theirs) if not theirs else (state_of(captured), state_of(known))]
        if not all(is_small(each) for _, wanted in pairs for each in wanted.values()):
            tally.unjudged += 1
            return ""
        for found, wanted in pairs:
            if found.keys() != wanted.keys():
                return f"step {number} has {sorted(found)}, not {sorted(wanted)}"
            for name, value in wanted.items():
                error = find_error(found[name], value, loose=False)
                if not error <= tolerance:
                    return f"step {number}: {name} is off by {error:.1e}"
        if not theirs:
            break  # both have raised the same
    return count(captured, tally)


def count(captured: Step, tally: Tally) -> str:
    """Count a spec that agrees, and its graphs; return which function was compiled again."""
    graphs: Mapping[str, Any] = captured._built.engine.graphs  # pyright: ignore[reportAttributeAccessIssue]
    for title, each in graphs.items():
        entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(each.function.__code__)
        if len(entries) > max(1, len(each.sizes)):
            return f"{title} became {len(entries)} graphs for {len(each.sizes)} sizes of batches"
        tally.graphs += bool(each.made)
        tally.eager[each.reason[:60]] += bool(each.reason)
    reasons = (note.partition(" runs eagerly: ")[2] for note in captured.notes if " runs eagerly: " in note)
    tally.eager.update(reason.partition("': ")[2][:60] or reason[:60] for reason in reasons)
    is_graph = any(each.made for each in graphs.values())
    tally.agreed, tally.uncaptured = tally.agreed + is_graph, tally.uncaptured + (not is_graph)
    return ""


def take(step: Step, batch: Mapping[str, np.ndarray], turn: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Return the outputs of a step; the code of its error under no name where it raises."""
    mode, *datasets = turn
    try:
        found = step(dict(batch), mode, dataset=datasets[0]) if any(datasets) else step(dict(batch), mode)
    except SpecError as error:
        return {codes_of(error): np.zeros(())}
    return {name: step.numpy(value) for name, value in found.items()}


def state_of(step: Step) -> dict[str, np.ndarray]:
    """Return all state by name, counters too."""
    state = step.state()
    counters = {f"counters.{name}": np.asarray(each) for name, each in flat(state.counters).items()}
    return {**state.arrays, **counters}


def flat(counters: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in a tree of mappings by their paths."""
    found: dict[str, float] = {}
    for name, each in counters.items():
        if isinstance(each, Mapping):
            found |= flat(each, f"{prefix}{name}.")
        elif isinstance(each, (int, float)):
            found[f"{prefix}{name}"] = float(each)
    return found


def main() -> None:
    """Print what came of the specs, and of each as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="compare with eager steps, not with the oracle")
    parser.add_argument("--inductor", action="store_true", help="compile the graphs: half a minute for each spec")
    parser.add_argument("--recorded", action="store_true", help="compare recorded graphs with the same as they are")
    parser.add_argument(
        "--specs", choices=WRITERS, default="base", help="with all features few become graphs (default: base)"
    )
    options = parser.parse_args()
    write = WRITERS[options.specs]
    attempt = judge_specs if not options.eager else try_specs
    if options.recorded:
        attempt = partial(try_specs, recorded=True)
    tally = Tally()
    for seed in range(options.first, options.first + options.count):
        found = attempt([seed], write, inductor=options.inductor)
        tally.add(found)
        counts = f"{found.graphs} graphs" + f", {found.recorded} recorded" * options.recorded
        print(f"seed {seed}: {counts}", *found.mismatches, *found.rejected, sep=", ", flush=True)
    print(f"{tally.agreed} specs with {tally.graphs} graphs agree, and {tally.uncaptured} without graphs")
    if options.recorded:
        print(f"{tally.recorded} recordings were made of these graphs")
    print(f"{tally.unjudged} say nothing: they diverge, or hang on rounding")
    for title, counted in (("rejected", tally.rejected), ("run eagerly", tally.eager)):
        print(f"{title}:", *(f"\n  {number:4} {name}" for name, number in counted.most_common() if number))
    print(*tally.mismatches, sep="\n")
    raise SystemExit(bool(tally.mismatches))


if __name__ == "__main__":
    main()

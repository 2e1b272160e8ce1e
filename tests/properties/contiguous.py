"""Random specs under the rule of FastEstimator: ``python -m tests.properties.contiguous 300``.

That rule: updates are done where they are listed, but those that nothing else follows
first take all their gradients and then write; every gradient but the last keeps its graph.

The listing is the best one for it: whatever may stand before an update does, and every forward sees the weights that it
should. What can go wrong is what a gradient still reads.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

import torch
from msgspec.structs import replace
from torch.autograd import _unsafe_preserve_version_counter as preserve_versions

from compiler import Plan
from compiler.ir.instructions import Apply, Emit, Forward, Gradient, Instruction, Release, Transform
from compiler.ir.program import Function, Program
from compiler.ir.step_graph import Hazard, StepGraph
from graphspec.declare.ops import CopyOp, EmaOp, UpdateOp
from graphspec.diagnostics import SpecError
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import find_difference, hangs_on_rounding, modes_of, run, run_oracle
from tests.properties.execution import Execution
from tests.properties.plans import plan_of
from tests.properties.programs import emit_changed
from tests.properties.specs import base_spec

OUTCOMES = ("right", "raises", "silently wrong")
OF_GRADIENTS = (Hazard.BACKWARD_WAR, Hazard.BUFFER_WAR)
"""What the rule does not know."""


def rearrange(plan: Plan) -> Program:
    """Return the program of a plan with the train steps in the order of the rule."""
    program, wanted = plan.program, plan.program.mode("train")
    functions = tuple(_follow_rule(plan, one) for one in wanted.functions)
    modes = tuple(replace(mode, functions=functions) if mode is wanted else mode for mode in program.modes)
    return replace(program, modes=modes)


def _follow_rule(plan: Plan, function: Function) -> Function:
    """Return a function whose updates are done as the rule has it."""
    listed, end = list_ops(plan, plan.graphs[function.name]), function.instructions[-1]
    tail = find_tail(plan, listed)
    first = [one for op in listed if op not in tail for one in _belonging(function, op)]
    last = [one for op in listed if op in tail for one in _belonging(function, op)]
    pending = [one for one in last if not isinstance(one, Apply) and one.op in find_updates(plan)]
    written = [one for one in last if one not in pending]
    return replace(function, instructions=(*_retain([*first, *pending, *written]), end))


def find_updates(plan: Plan) -> set[str]:
    """Return the updates of a spec."""
    return {name for name, op in plan.spec.ops.items() if isinstance(op, UpdateOp)}


def list_ops(plan: Plan, graph: StepGraph) -> list[str]:
    """Return the ops in the best order for the rule: values, then updates, then averages and copies, as soon as may be.

    Every op stands where it reads and writes the versions that it should.
    """
    edges = (edge for edge in graph.edges if edge.hazard not in OF_GRADIENTS)
    pairs = [(graph.nodes[edge.before].op, graph.nodes[edge.after].op) for edge in edges]
    pending = sorted({node.op: None for node in graph.nodes.values()}, key=lambda op: _rank(plan, op))
    before = {op: {first for first, second in pairs if second == op != first} for op in pending}
    listed: list[str] = []
    while pending:
        listed.append(next(op for op in pending if not before[op].intersection(pending)))
        pending.remove(listed[-1])
    return listed


def _rank(plan: Plan, op: str) -> int:
    return 2 if isinstance(plan.spec.ops[op], EmaOp | CopyOp) else int(op in find_updates(plan))


def find_tail(plan: Plan, listed: list[str]) -> list[str]:
    """Return the updates that nothing follows but averages and copies, and these."""
    start = len(listed)
    while start and _rank(plan, listed[start - 1]) > 0:
        start -= 1
    return listed[start:]


def _belonging(function: Function, op: str) -> list[Instruction]:
    """Return the instructions of an op; nothing is forgotten, and no buffers are cloned that the spec does not name."""
    found = [one for one in function.instructions if one.op == op and not isinstance(one, Release | Emit)]
    return [
        replace(one, snapshot="none") if isinstance(one, Forward) and one.snapshot == "buffers" else one
        for one in found
    ]


def _retain(instructions: list[Instruction]) -> Iterator[Instruction]:
    """Yield the instructions; all gradients but the last keep their graph."""
    last = max((index for index, one in enumerate(instructions) if isinstance(one, Gradient)), default=-1)
    for index, one in enumerate(instructions):
        yield replace(one, retain_graph=index != last) if isinstance(one, Gradient) else one


def find_broken(plan: Plan) -> Iterator[str]:
    """Yield what the rule writes too early: the constraints of gradients that it breaks, and clones that it lacks."""
    for function in rearrange(plan).mode("train").functions:
        graph = plan.graphs[function.name]
        taken = {_node_of(one, graph): index for index, one in enumerate(function.instructions)}
        yield from graph.snapshots
        for edge in graph.hazards:
            if edge.hazard in OF_GRADIENTS and taken[edge.before] > taken[edge.after]:
                yield edge.after


def _node_of(instruction: Instruction, graph: StepGraph) -> str:
    match instruction:
        case Gradient(op=op) if f"{op}.gradient" in graph.nodes:
            return f"{op}.gradient"
        case Transform(output=output):
            return output
        case _:
            return instruction.op


# ---------------------------------------------------------------- what comes of it


def try_rule(plan: Plan, *, fused: bool) -> str:
    """Return what becomes of a plan under the rule; raise DegenerateError where nothing can be told."""
    execution = Execution(plan, emit_changed(rearrange(plan)))
    told = plan.spec, execution.shapes(), modes_of(plan)
    meant = run_oracle(*told)
    if fused:
        hide_writes(execution)
    try:
        found = run(execution, plan.spec, modes_of(plan))
    except RuntimeError:
        return "raises"
    wrong = find_difference(found, meant, single=True)
    if wrong and hangs_on_rounding(*told, meant):
        raise DegenerateError("rounding alone changes the numbers")
    return "silently wrong" if wrong else "right"


def hide_writes(execution: Execution) -> None:
    """Let fused kernels write as torch's own optimizers with ``fused=True`` do: autograd is not told.

    The support code tells it; here the version counters are put back. Rules without a fused kernel stay as they are.
    """
    for optimizer in execution.names["OPTIMIZERS"].values():
        if optimizer.fused:
            optimizer.apply = hide(optimizer.apply, optimizer.parameters)


def hide(apply: Callable[[Any], None], parameters: list[torch.Tensor]) -> Callable[[Any], None]:
    """Return a write that leaves no trace in the version counters."""

    def hidden(gradients: Any) -> None:
        with preserve_versions(tuple(parameters)):
            apply(gradients)

    return hidden


def find_plans(seeds: Iterable[int]) -> Iterator[Plan]:
    """Yield the plans of random specs with two updates or more."""
    for seed in seeds:
        with suppress(SpecError):
            plan = plan_of(base_spec(Random(seed)))
            if len(find_updates(plan)) >= 2:
                yield plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of a plan under the rule, with default and with fused optimizers."""

    plan: Plan
    outcomes: Mapping[str, str]


def try_plans(plans: Iterable[Plan]) -> Iterator[Tried]:
    """Yield what becomes of plans under the rule, where that can be told."""
    for plan in plans:
        with suppress(DegenerateError):
            outcomes = {name: try_rule(plan, fused=name == "fused") for name in ("default", "fused")}
            yield Tried(plan=plan, outcomes=outcomes)


def main(most: int) -> int:
    """Print a table of what becomes of so many specs; return 1 where one goes wrong that loses nothing by the rule."""
    found = list(islice(try_plans(find_plans(count())), most))
    print("| optimizers | right | raises | silently wrong |\n|---|---|---|---|")
    for name in ("default", "fused"):
        counts = Counter(one.outcomes[name] for one in found)
        print(f"| {name} | " + " | ".join(str(counts[outcome]) for outcome in OUTCOMES) + " |")
    without = [one for one in found if not any(find_broken(one.plan))]
    print(f"{len(without)} of {len(found)} specs leave nothing behind that a gradient still reads")
    wrong = [one for one in without if set(one.outcomes.values()) != {"right"}]
    print(f"{len(wrong)} of them go wrong all the same")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

"""A step in half a page: when what is written, by which optimizer, and what waits, is kept or is cloned, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler.ir.diagnose import place_in
from compiler.ir.program import ModeProgram, OptimizerDecl
from compiler.ir.value import ScheduleDecl
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.folds import group_iterations
from compiler.plan.overflow import describe_overflow
from compiler.plan.reachable_functions import (
    SHOWN,
    describe_assumption,
    describe_draws,
    describe_steps,
    find_first_dispatches,
    find_pattern,
)
from compiler.plan.timetable import format_schedule
from compiler.plan.waits import find_waits
from graphspec.declare.ops import AssignOp, CopyOp, EmaOp, Op, UpdateOp
from graphspec.diagnostics import escape

WAITING = ("DEFER", "RETAIN", "CREATE_GRAPH", "SNAPSHOT", "RECOMPUTE", "MERGE", "GATHER")
"""Decisions that cost something, or move an update."""
WAITS = "what waits, is kept or is cloned"
SEEN = "forwards that read what the step wrote (all others: the weights of its start)"
NOTHING = {"no update is deferred": "DEFER", "no graph is kept": "RETAIN", "nothing is cloned": "SNAPSHOT"}
"""What is said where no decision has a code."""
DIGITS = "123456789abcdefghijklmnopqrstuvwxyz"


def summarize(plan: CompiledStep) -> str:
    """Return what a train step does as text; of a spec without updates, what its first mode does."""
    program, mode = plan.program, find_summarized(plan)
    lines = [f"{program.name}: {mode.mode} step for {program.backend}, order {program.order}"]
    if others := [each.mode for each in program.modes if each is not mode]:
        lines += [f"other modes: {', '.join(others)} (`plan --mode {others[0]}`)"]
    names = [function.name for function in mode.functions]
    assumption = describe_assumption(mode, program)
    lines += ["", assumption] if assumption else []
    if first := find_first_dispatches(mode, program) if 1 < len(names) <= len(DIGITS) else ():
        shown = ("/".join(DIGITS[names.index(name)] for name in each) for each in first)
        lines += ["", f"steps 1 to {SHOWN}: {' '.join(shown)}"]
        alike: dict[str, list[str]] = {}
        for name, steps in describe_steps(mode, program).items():
            alike.setdefault(steps, []).append(f"{DIGITS[names.index(name)]}: {name}")
        lines += [f"  {', '.join(functions)} ({steps})" for steps, functions in alike.items()]
    overflow = [f"  {sentence}" for sentence in describe_overflow(plan, mode.mode)]
    drawn = [f"  {sentence}" for sentence in describe_draws(mode)]
    for title, entries in list_sections(plan, mode).items():
        width = 13 if title == WAITS else 2 + max(map(len, dict(entries)), default=0)
        lines += ["", "drawn", *drawn] if title == WAITS and drawn else []
        lines += ["", "overflow", *overflow] if title == WAITS and overflow else []
        lines += ["", title, *(f"  {name:<{width}}{text}" for name, text in entries)] if entries else []
    waiting = list_sections(plan, mode)[WAITS]
    nothing = name_nothing(waiting)
    lines += ([f"  {nothing}"] if waiting else ["", nothing]) if nothing else []
    return "\n".join(map(escape, lines)) + "\n"


def name_nothing(waiting: Sequence[tuple[str, str]]) -> str:
    """Return what no decision says: `no update is deferred and nothing is cloned`."""
    codes = dict(waiting)
    *most, last = [text for text, code in NOTHING.items() if code not in codes] or [""]
    return f"{', '.join(most)}{',' if most[1:] else ''} and {last}" if most else last


def find_summarized(plan: CompiledStep) -> ModeProgram:
    """Return the mode that a summary is about: train, where the spec has it."""
    return next((each for each in plan.program.modes if each.mode == "train"), plan.program.modes[0])


def list_sections(plan: CompiledStep, mode: ModeProgram) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Return the parts of a summary by their titles: names and codes, each with what there is to say about it."""
    graphs = tuple(plan.graphs_of(mode.mode).values())
    decisions = ((each.code, each.text) for graph in graphs for each in graph.decisions if each.code in WAITING)
    waits = (  # of what is not deferred: the order has what it waits for before its gradient anyway
        ("waits", f"{graph.nodes[name].label}, for {_join(', ', awaited)}: {_join('; ', (edge.why for edge in edges))}")
        for graph in graphs
        for name, edges in find_waits(graph).items()
        for awaited in ([graph.nodes[edge.before].label for edge in edges],)
        if not any((each.code, each.node) == ("DEFER", name) for each in graph.decisions)
    )
    moments, ops = find_moments(plan, mode), plan.spec.ops
    models: dict[str, str] = {}
    for model in plan.program.models:
        steppers = [name for name, op in ops.items() if isinstance(op, UpdateOp) and model.name in op.update]
        rules = [_format_optimizer(each) for each in plan.program.optimizers if model.name in each.models]
        parts = (
            [f"trained by {', '.join(group_iterations(steppers, plan.spec))} ({'; '.join(rules)})"] if steppers else []
        )
        followers: dict[str, list[str]] = {}
        for name, op in ops.items():
            if isinstance(op, EmaOp | CopyOp) and model.name == (op.target(name) if isinstance(op, EmaOp) else op.into):
                source = f"follows {op.ema}" if isinstance(op, EmaOp) else f"a copy of {op.copy_}"
                followers.setdefault(source, []).append(name)
        parts += [f"{how} ({', '.join(group_iterations(names, plan.spec))})" for how, names in followers.items()]
        models[model.name] = "; ".join(parts) or "stays as it is"
    written: dict[str, tuple[str, str]] = {}
    for when in dict.fromkeys(moments.values()):  # iterations that are written in the same steps are one
        among = (op for op, moment in moments.items() if moment == when)
        for op, (names, text) in _say_together({each: _describe(each, ops[each]) for each in among}, plan).items():
            place = place_in(plan.spec.span("ops", op, key=True))
            written[op] = names, f"{text}, {when}" + (f" ({place})" if place else "")
    seen: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for node in (each for each in graph.nodes.values() if each.called is not None):
            weights = (read for read in node.reads if read.cell.kind != "buffers")
            before = (name for read in weights for name in graph.writers.get(read.cell, ())[: read.version])
            if writers := dict.fromkeys(graph.nodes[name].op for name in before):
                text = ", ".join(group_iterations(writers, plan.spec))
                seen.setdefault(node.op, {})[f"{node.called} after {text}"] = None
    return {
        "models": tuple(models.items()),
        SEEN: tuple(_say_together({op: "; or ".join(found) for op, found in seen.items()}, plan).values()),
        "written": tuple(written[op] for op in moments if op in written),
        WAITS: tuple(dict.fromkeys((*waits, *decisions))),
    }


def _join(mark: str, texts: Iterable[str]) -> str:
    """Return texts one after another, each once."""
    return mark.join(dict.fromkeys(texts))


def _say_together(texts: Mapping[str, str], plan: CompiledStep) -> Mapping[str, tuple[str, str]]:
    """Return what is said of each op; of the iterations of one by the first, in its words."""
    found: dict[str, tuple[str, str]] = {}
    for names, group in group_iterations(texts, plan.spec).items():
        first, last = texts[group[0]], texts[group[-1]]
        found[group[0]] = (names, first if first == last else f"{first}, and so on")
    return found


def _format_optimizer(optimizer: OptimizerDecl) -> str:
    """Return a rule and its learning rate."""
    rate, rule = optimizer.options.get("lr"), optimizer.rule.split(":")[-1]
    text = format_schedule(rate) if isinstance(rate, ScheduleDecl) else f"{rate:g}" if isinstance(rate, float) else ""
    return f"{rule}, lr {text}" if text else rule


def find_moments(plan: CompiledStep, mode: ModeProgram) -> Mapping[str, str]:
    """Return in which steps of a mode each op that writes does: `in every step`, or `in steps 2, 4, 6, ...`."""
    pattern = find_pattern(mode, plan.program) if len(mode.functions) > 1 else None
    drawn = [gate.op for gate in mode.gates if gate.draw]
    moments: dict[str, str] = {}
    for op in dict.fromkeys(op for function in mode.functions for op in function.active):
        among = [function for function in mode.functions if op in function.active]
        if len(among) == len(mode.functions):
            moments[op] = "in every step"
        else:
            chosen = frozenset(function.name for function in among)
            steps = "some steps" if pattern is None else pattern.describe(chosen)
            parts = [part for part in drawn if all(part in function.gated for function in among)]
            steps += f" with {' and '.join(parts)}" if parts else ""
            moments[op] = steps if steps.startswith(("from", "after", "only")) else f"in {steps}"
    return moments


def _describe(name: str, op: Op) -> str:
    """Return in words what an op writes, and from what."""
    match op:
        case UpdateOp():
            source = op.loss or ", ".join(op.gradients or ())
            window = f" accumulated over {op.window} steps" if op.window > 1 else ""
            return f"{', '.join(op.update)} from {source}{window}"
        case EmaOp():
            seldom = f" after every {op.every} writes of {op.ema}" if isinstance(op.every, int) and op.every > 1 else ""
            back = op.use.write_back
            taken = f", and back into {op.ema} after every {back.every} writes of {op.ema}" if back is not None else ""
            return f"{op.target(name)} from {op.ema}{seldom}{taken}"
        case CopyOp():
            return f"{op.into} from {op.copy_}"
        case AssignOp():
            return f"{op.assign} from {op.value}"
        case _:
            return op.kind

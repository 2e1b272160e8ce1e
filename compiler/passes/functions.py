"""Functions of a mode: one for every set of ops that fire together, from its nodes to its instructions in sequence."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.losses import find_sums, is_split
from compiler.batch.split import split_graph
from compiler.checks.effects import check_idle
from compiler.checks.micro_batches import check_batch, check_coupled
from compiler.checks.replicas import check_added, check_gathered
from compiler.ir.diagnose import span_of
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Gate, Mode, ModeProgram, back_of
from compiler.ir.step_graph import StepGraph
from compiler.passes.activate import Outputs, find_absent_problems, find_firing
from compiler.passes.assemble import assemble
from compiler.passes.datasets import DatasetActivity, check_numbers
from compiler.passes.document import Context, Document, lower_mode
from compiler.passes.eval_averages import (
    MOST_FUNCTIONS,
    check_draws,
    check_number,
    find_eval_averages,
    find_uses,
    map_models,
)
from compiler.passes.freeze import find_freeze_gates, find_frozen
from compiler.passes.pipeline import ANALYSES, CHECKS, SCHEDULING, Hook, run_passes
from compiler.passes.presence import find_absent, find_idle_writes
from compiler.passes.select import runs_in, select_graph
from compiler.timing.firing_sets import bound_sets, enumerate_datasets, enumerate_patterns
from compiler.timing.gates import keep_firing, merge_alike
from compiler.timing.phases import find_phase_gates, map_cells
from graphspec.analysis.datasets import UNNAMED
from graphspec.analysis.modes import find_reaches
from graphspec.diagnostics import Diagnostic


class CompiledMode(Struct, frozen=True, kw_only=True):
    """The program of a mode, without functions where the mode has problems, and what the passes found out."""

    program: ModeProgram
    graphs: Mapping[str, StepGraph]
    """By function."""
    live: frozenset[str]
    """The ops that fire in some step."""


class Variant(Struct, frozen=True, kw_only=True):
    """One way in which a step of a mode runs."""

    whole: ModeGraph
    """What can run on a batch of the data set, with what is frozen and stepped then."""
    gates: tuple[Gate, ...]
    fired: frozenset[str]
    """The gates that are open."""
    outputs: Outputs


def compile_mode(document: Document, mode: Mode, context: Context, hook: Hook | None) -> CompiledMode:
    """Return the program of a mode, with the graph of each of its functions."""
    spec, pace = context.spec, context.pace
    whole, averages = lower_mode(document, mode, context), find_eval_averages(spec, mode)
    phases, freezes = find_phase_gates(spec, mode, whole.nodes, pace), find_freeze_gates(spec, mode, whole.nodes, pace)
    activity = DatasetActivity.of(spec, mode, whole.nodes, (*phases, *freezes), pace.epoch)
    patterns = _find_patterns(activity, MOST_FUNCTIONS // 2 ** len(averages), context)
    kept = keep_firing(activity.gates, (fired for _, fired in patterns), activity.anywhere)
    gates = (*kept, *(Gate(op=average.op, clock="averaged") for average in averages))
    merged, _ = merge_alike(activity.gates, activity.always.values(), activity.undecided)
    bound = bound_sets(merged) * len(activity.always)
    problems = tuple(check_number(spec, mode, patterns, bound, averages))
    idle = tuple(check_idle(spec, activity.gates, kept)) if mode == "train" and not problems else ()
    context.sink.report((*problems, *idle))
    graphs: list[StepGraph] = []
    # Once these are fixed other ops may fire: none is reported as one that never does.
    live = {node.op for node in whole.nodes.values()} if problems or idle else set[str]()
    for used in () if problems else find_uses(averages):
        known: dict[tuple[object, ...], ModeGraph] = {} if used else {((), ()): whole}
        for variant, graph in _find_variants(
            document, mode, activity, patterns, map_models(used), whole, known, context
        ):
            live.update(node.op for node in graph.nodes.values())
            compiled = run_passes(graph, (*ANALYSES, *CHECKS), context, hook)
            if compiled is not None:
                compiled = _split(compiled, variant, document, context, hook)
            if compiled is not None:
                compiled = run_passes(compiled, SCHEDULING, context, hook)
            if compiled is not None:
                fired = {*compiled.gated, *(average.op for average in used)}
                graphs.append(replace(compiled, gated=tuple(gate.op for gate in gates if gate.op in fired)))
    numbers = [""] if len(graphs) == 1 else [f"_{number}" for number in range(1, len(graphs) + 1)]
    named = {f"{mode}_step{number}": graph for number, graph in zip(numbers, graphs, strict=True)}
    functions = tuple(assemble(graph, name, context.types) for name, graph in named.items())
    return CompiledMode(
        program=ModeProgram(mode=mode, gates=gates, functions=functions, undecided=activity.undecided),
        graphs=named,
        live=frozenset(live) | find_sums(spec, live, document.values),
    )


def _find_patterns(activity: DatasetActivity, most: int, context: Context) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return every pattern of gates with a data set that it is met on; of more than ``most`` one more than that.

    Just that of all gates open where they never repeat in a reasonable time, or too much is drawn.
    """
    drawn = tuple(check_draws(context.spec, activity.gates))
    context.sink.report(drawn)
    if drawn:
        return tuple((dataset, frozenset(gate.op for gate in activity.gates)) for dataset in activity.outputs)
    try:
        if activity.are_named:
            return enumerate_datasets(activity.gates, activity.always, activity.undecided, most)
        patterns = enumerate_patterns(activity.gates, activity.always[UNNAMED], activity.undecided, most)
        return tuple((UNNAMED, fired) for fired in patterns)
    except ValueError as error:
        # Alternatives and groups that are frozen for some time have gates, too, but nothing that recurs.
        slow = {gate.op for gate in activity.gates if gate.every > 1}
        first = next(op for op in context.spec.ops if not slow.isdisjoint((op, back_of(op))))
        span = span_of(context.spec, first, "every")
        help = "choose intervals with a small common multiple"
        context.sink.report([Diagnostic(code="E-CLOCKS", message=str(error), span=span, help=help)])
        return tuple((dataset, frozenset(gate.op for gate in activity.gates)) for dataset in activity.outputs)


def _find_variants(
    document: Document,
    mode: Mode,
    activity: DatasetActivity,
    patterns: tuple[tuple[str, frozenset[str]], ...],
    averages: Mapping[str, str],
    whole: ModeGraph,
    known: dict[tuple[object, ...], ModeGraph],
    context: Context,
) -> tuple[tuple[Variant, StepGraph], ...]:
    """Return every set of nodes that fire together, each once, as a graph before any pass."""
    spec, by_op = context.spec, {gate.op: gate for gate in activity.gates}
    found: dict[tuple[object, ...], tuple[Variant, StepGraph]] = {}
    for dataset, fired in patterns:
        phases, frozen = map_cells(spec, fired), find_frozen(spec, fired)
        place = tuple(phases.items()), frozen
        if place not in known:
            lowered = lower_mode(document, mode, context, averages, phases, frozen)
            # What happens before what is the same in every step: whether an average is in use yet changes nothing.
            known[place] = replace(lowered, ordering=whole.ordering) if averages else lowered
        present, outputs = activity.restrict(known[place], dataset), activity.outputs[dataset]
        firing = find_firing(present.nodes, outputs, by_op, fired)
        context.sink.report(find_absent_problems(spec, present.nodes, by_op, fired, firing))
        graph = select_graph(present, mode, firing, fired, activity.gates, outputs)
        if activity.are_named:
            context.sink.report(check_numbers(known[place], graph, dataset))
        key = graph.gated, tuple(graph.nodes), graph.outputs
        variant = Variant(whole=present, gates=activity.gates, fired=fired, outputs=outputs)
        variant, first = found.get(key, (variant, graph))
        datasets = (*first.datasets, dataset) if activity.are_named else ()
        found[key] = variant, replace(graph, datasets=datasets)
    return tuple(found.values())


def _split(
    graph: StepGraph, variant: Variant, document: Document, context: Context, hook: Hook | None
) -> StepGraph | None:
    """Return a graph split into micro-batches, between replicas, or both, with versions and paths.

    Micro-batches are of train mode; replicas evaluate together, too.
    """
    whole, outputs = variant.whole, variant.outputs
    if not is_split(context.spec, graph.mode):
        return graph
    count = context.spec.micro_batches if graph.mode == "train" else 1
    problems = tuple(check_batch(whole, count))
    context.sink.report(problems)
    if problems:
        return graph
    reaches = find_reaches(context.spec)
    parts = split_graph(
        whole, document.structure.types, outputs.values, lambda node: runs_in(graph.mode, node, reaches), count
    )
    context.sink.report(check_coupled(whole, parts.coupled))
    if parts.unshared:
        context.sink.report(check_gathered(whole, parts.unshared))
    if context.spec.is_replicated:
        context.sink.report(check_added(whole, parts.graph.nodes))
    idle = {gate.op for gate in variant.gates} - variant.fired
    absent = find_absent(parts.graph.nodes, idle) | find_idle_writes(parts.graph.nodes, idle)
    firing = [name for name in graph.nodes if name in whole.everything]  # what combines verdicts is added again
    copies = parts.find_firing(firing, outputs.values, absent)
    split = select_graph(parts.graph, graph.mode, copies, variant.fired, variant.gates, outputs)
    decisions = tuple(decision for name, decision in parts.decisions.items() if name in graph.nodes)
    split = replace(split, decisions=decisions, datasets=graph.datasets, wholes=parts.wholes)
    return run_passes(split, ANALYSES, context, hook)

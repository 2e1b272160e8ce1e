"""Checks of which versions meet: W-STALE, W-MIXED, W-ADVERSARY."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from compiler.ir.cell import Cell
from compiler.ir.diagnose import span_of
from compiler.ir.step_graph import StepGraph
from compiler.passes.schedule import Chain, find_chains
from compiler.passes.versions import find_unordered
from graphspec.declare.blocks import find_use, find_written
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic


def check_stale(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield W-STALE for a gradient taken at one version of a model and applied to a later one."""
    for name, chain in find_chains(graph).items():
        node = graph.nodes[name]
        for gradient in chain.gradients:
            read = find_versions(graph, gradient)
            for write in node.writes:
                cell, taken = write.cell, read.get(write.cell)
                written = None if cell.kind == "optimizer" else graph.version(name, cell)
                if taken and written is not None and max(taken) < written:
                    yield Diagnostic(
                        code="W-STALE",
                        severity="warning",
                        message=f"'{node.op}' applies a gradient taken at {cell}@{max(taken)} to {cell}@{written}",
                        span=span_of(spec, node.op),
                        label="the weights changed in between",
                        help=f"write `after: {graph.nodes[graph.writers[cell][written - 1]].op}` on the forwards of "
                        "its loss, or add the losses and update once",
                    )


def check_mixed(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield W-MIXED for a gradient that sums uses of one target at several versions."""
    for gradient in graph.paths:
        derivative = graph.nodes[gradient].derivative
        read = find_versions(graph, gradient)
        for cell in sorted(derivative.cells, key=str) if derivative is not None else ():
            versions = read.get(cell, ())
            if len(versions) > 1:
                listed = " and ".join(f"{cell}@{version}" for version in sorted(versions))
                yield Diagnostic(
                    code="W-MIXED",
                    severity="warning",
                    message=f"the gradient of '{graph.nodes[gradient].op}' sums uses of {listed}",
                    span=span_of(spec, graph.nodes[gradient].op),
                    label="one gradient, several versions",
                    help="let all forwards of the loss read one version",
                )


def check_adversary(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield W-ADVERSARY where an update is judged by a model that another update of the step moves from another loss.

    One warning per judging forward. Silenced by `after: []` on it, which says that the weights at the start of the
    step are meant.
    """
    chains = find_chains(graph)
    judged: dict[str, set[str]] = {}
    movers: dict[str, set[str]] = {}
    for update, chain in chains.items() if len(chains) > 1 else ():
        for gradient in chain.gradients:
            for name in graph.paths[gradient].nodes:
                found = set(_find_movers(graph, name, update, gradient, chains))
                if found and spec.ops[graph.nodes[name].op].after != ():
                    judged.setdefault(name, set()).add(update)
                    movers.setdefault(name, set()).update(found)
    for name in filter(judged.__contains__, graph.nodes):
        updates, first = sorted(judged[name]), min(movers[name])
        are_judged = " and ".join(f"'{update}'" for update in updates) + (" is" if len(updates) == 1 else " are")
        node = graph.nodes[name]
        model, span = node.called or node.reads[0].cell.owners[0], span_of(spec, node.op)
        # An op of a block cannot name ops of the document: what its use says holds for it.
        declared = find_use(node.op) if span is not None and span.via else node.op
        helped = f"write `after: {first}` on '{declared}' to judge with the updated model"
        yield Diagnostic(
            code="W-ADVERSARY",
            severity="warning",
            message=f"{are_judged} judged by '{model}' as it was before {', '.join(sorted(movers[name]))}",
            span=span,
            label=f"reads {model} as it is at the start of the step",
            help=f"{helped}, or `after: []` if you mean this",
        )


def _find_movers(graph: StepGraph, name: str, update: str, gradient: str, chains: Mapping[str, Chain]) -> Iterator[str]:
    """Yield the updates that, from other losses, move a model which a forward reads unmoved and ``update`` leaves."""
    own = graph.nodes[gradient].derivative
    for read in graph.nodes[name].reads:
        if read.cell.kind == "buffers" or own is None or read.cell in own.cells or graph.version(name, read.cell) != 0:
            continue
        for writer in graph.writers.get(read.cell, ()):
            gradients = chains[writer].gradients if writer in chains else ()
            derivatives = (graph.nodes[other].derivative for other in gradients)
            losses = {derivative.loss for derivative in derivatives if derivative is not None}
            if writer != update and losses and own.loss not in losses:
                yield writer


def find_versions(graph: StepGraph, gradient: str) -> Mapping[Cell, Collection[int]]:
    """Return the versions of each cell that the nodes on a gradient's path read."""
    found: dict[Cell, set[int]] = {}
    for name in graph.paths[gradient].nodes:
        for read in graph.nodes[name].reads:
            found.setdefault(read.cell, set()).add(read.version)
    return found


def find_unordered_problems(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-UNORDERED-WRITES once for every pair of updates, averages, copies or assignments."""
    pairs: dict[tuple[str, str], Cell] = {}
    for cell, first, second in find_unordered(graph):
        # an average into an updated model is E-EMA-TARGET
        is_order_only = isinstance(spec.ops[first], UpdateOp) == isinstance(spec.ops[second], UpdateOp)
        if cell.kind != "optimizer" and is_order_only:
            pairs.setdefault((first, second), cell)
    for (first, second), cell in pairs.items():
        before, writer = find_written(first, second)
        place, order = graph.nodes[first].place, f"write `after: {before}` on '{writer}'"
        yield Diagnostic(
            code="E-UNORDERED-WRITES",
            message=f"'{first}' and '{second}' both write {cell} in one step, and nothing says which comes first",
            span=span_of(spec, second),
            label=f"'{first}' writes it too" + (f" ({place})" if place else ""),
            help=order if cell.kind == "state" else f"add the losses and update once, or {order}",
        )

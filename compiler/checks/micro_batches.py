"""Checks of micro-batches: E-MICRO, W-COUPLED."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from compiler.batch.losses import (
    are_added,
    find_accumulating,
    find_addends,
    find_own,
    find_plain,
    find_set_losses,
    find_terms,
    is_split,
)
from compiler.batch.placement import GATHERING
from compiler.facts.models import Observations
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Evaluate
from compiler.ir.mode_graph import ModeGraph
from compiler.types.calls import BATCH
from compiler.types.values import Values, find_rows, find_whole
from graphspec.analysis.modes import find_makers
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, RandomOp, UpdateOp
from graphspec.diagnostics import Diagnostic

GATHER = "let it read what `all_gather` makes of its operands, "
"""What helps an op that several processes evaluate, each on its rows; layers have `sync`."""


def _name_part(spec: GraphSpec) -> tuple[str, str]:
    """Return what has a part of the batch, and the key that declares it."""
    return ("replica", "parallel") if spec.is_replicated else ("micro-batch", "micro_batches")


def check_batch(graph: ModeGraph, count: int) -> Iterator[Diagnostic]:
    """Yield E-MICRO where there is nothing to split, and for what cannot be split: an order of the whole batch.

    ``count``: of micro-batches; one of several does not have the rows of the others at the same time.
    """
    spec, part, word = graph.spec, *_name_part(graph.spec)
    parts = "replicas" if spec.is_replicated else "micro-batches"
    if all(declared.shape is not None and BATCH not in declared.shape for declared in spec.inputs.values()):
        yield Diagnostic(
            code="E-MICRO",
            message=f"no input has a dimension named `batch`, so there is nothing to split into {parts}",
            span=spec.span(word),
            label="splits the dimension named `batch`",
            help=f"declare it, as in `x: {{shape: [batch, 4]}}`, or remove `{word}`",
        )
    for name, op in spec.ops.items():
        if name not in graph.nodes:
            continue
        # What a permutation is like may have the batch's length.
        if isinstance(op, RandomOp) and op.random == "permutation" and (op.like or BATCH in (op.shape or ())):
            yield Diagnostic(
                code="E-MICRO",
                message=f"'{name}' permutes the whole batch, but a {part} has only some of its rows",
                span=span_of(spec, name),
                label="its numbers are positions in the whole batch",
                help=f"mix samples where batches are made and pass the result as an input, or remove `{word}`",
            )
        if isinstance(op, CallOp) and count > 1 and op.call.name("torch") in GATHERING:
            yield Diagnostic(
                code="E-MICRO",
                message=f"'{name}' gathers the rows of the whole batch, but a micro-batch has only some of them",
                span=span_of(spec, name),
                label="needs all rows at once",
                help="remove `micro_batches`; where memory is short, let more processes share the batch (`parallel`)",
            )
        if isinstance(op, CallOp) and op.call.name("torch") == "split_rows":
            yield Diagnostic(
                code="E-MICRO",
                message=f"'{name}' cuts the rows of the whole batch, but a {part} has only some of them",
                span=span_of(spec, name),
                label="its parts would be others than those of the batch",
                help=f"write `batch: reuse` or `batch: next` where a part repeats, or remove `{word}`",
            )


def check_coupled(graph: ModeGraph, coupled: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield W-COUPLED for every op whose micro-batches do not combine to its result on the whole batch."""
    part, word = _name_part(graph.spec)
    for name, why in coupled.items():
        node = graph.everything[name]
        is_gatherable = graph.spec.is_replicated and graph.spec.micro_batches == 1 and isinstance(node, Evaluate)
        if name in graph.nodes:
            yield Diagnostic(
                code="W-COUPLED",
                severity="warning",
                message=f"'{node.op}' sees one {part} at a time: {why}",
                span=span_of(graph.spec, node.op),
                label="couples the samples of a batch",
                help=f"{GATHER if is_gatherable else ''}remove `{word}`, or accept that the numbers depend on it",
            )


def check_counts(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-COUNTS for an update that gathers sums and means, which are combined over steps in different ways."""
    spec = graph.spec
    rows, whole = find_rows(graph.values), find_whole(graph.values)
    for update in find_accumulating(spec):
        losses = find_set_losses(spec, update)
        terms = [term for loss in losses for term in find_addends(spec, loss, whole, rows)]
        totals = [term for term in terms if graph.values[term].is_summed]
        means = [term for term in terms if term not in totals]
        if means and are_added(terms, graph.values):
            yield Diagnostic(
                code="E-COUNTS",
                message=f"'{update}' gathers '{totals[0]}', a sum, and '{means[0]}', a mean: they count differently",
                span=span_of(spec, update, "accumulate"),
                label="over several steps, sums are added up and means are not",
                help="give the terms the same `reduction`, or every step the same weight: `{steps: 4, reduce: steps}`",
            )


def check_summed(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-COUNTS for a term made of a sum over the batch by an op that is not linear in it."""
    spec, rows = graph.spec, find_rows(graph.values)
    sums = frozenset(name for name, value in graph.values.items() if value.is_summed)
    accumulating = find_accumulating(spec)
    updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    split = updates if is_split(spec, "train") else accumulating
    terms = {name: find_terms(spec, loss) for name in split for loss in find_set_losses(spec, name)}
    for name, term in {term: name for name, found in terms.items() for term in found if term not in sums}.items():
        summed = next((each for each in _find_origins(spec, name, rows) if each in sums), None)
        if summed is not None:
            yield Diagnostic(
                code="W-COUNTS",
                severity="warning",
                message=f"'{name}' is computed from '{summed}', a sum over the batch, and counts by its rows "
                f"where '{term}' combines {'steps' if term in accumulating else 'micro-batches'}",
                span=span_of(spec, name),
                label="not what one large batch would give",
                help="use a mean inside, or sum last",
            )


def _find_origins(spec: GraphSpec, value: str, rows: Collection[str]) -> Iterator[str]:
    """Yield a value and those it is computed from, nearest first, without those in ``rows``."""
    makers = find_makers(spec)
    pending, seen = [value], {value}
    for each in pending:
        yield each
        op = spec.ops.get(makers.get(each, each))
        operands = (one.name for one in (op.operands() if op is not None else ()))
        new = [name for name in operands if name not in rows and name not in seen]
        seen.update(new)
        pending.extend(new)


def check_split_counts(spec: GraphSpec, values: Values, observed: Observations) -> Iterator[Diagnostic]:
    """Yield E-MICRO for a loss with its own count whose gradient by a value is taken in micro-batches."""
    own = find_own(spec, observed.counts)
    for name in dict.fromkeys(find_plain(spec, "train", values)):
        if own.get(name) in ("kept", "returned"):
            yield Diagnostic(
                code="E-MICRO",
                message=f"the gradient of '{name}' by a value is divided by the count of the whole batch, "
                "but a micro-batch knows only its own part",
                span=span_of(spec, name),
                label="has its own count",
                help="take the gradient of a loss that counts rows, or remove `micro_batches`",
            )

"""Checks of terms that are absent from some steps: W-LAZY, W-EVAL, W-DATASET."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.batch.losses import find_set_losses, find_terms
from compiler.ir.diagnose import place_in, span_of
from compiler.ir.mode_graph import ModeGraph
from graphspec.analysis.datasets import find_datasets, find_places
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, LossOp, UpdateOp
from graphspec.diagnostics import Diagnostic


def check_lazy_terms(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-LAZY for a lazy term of an update that does not run in every step, unless `lazy` says what is meant."""
    for update, op, term in _find_terms(graph.spec):
        loss = graph.spec.ops.get(term)
        paces = op.every not in (None, 1)
        if isinstance(loss, LossOp) and paces and loss.times > 1 and loss.lazy is None:
            steps = f"the steps of '{op.every}'" if isinstance(op.every, str) else f"every {op.every} steps"
            runs = "never runs without it" if op.every == loss.every else f"runs only in {steps}"
            once = "if it should count once" if op.every == loss.every else "and as `weight` how often it should count"
            yield Diagnostic(
                code="W-LAZY",
                severity="warning",
                message=f"'{term}' counts {loss.every} times, as a term of every {loss.every} steps, but '{update}' "
                f"{runs}",
                span=span_of(graph.spec, term, "every"),
                label="multiplied by the steps between, not by the updates between",
                help=f"write `lazy: none` on '{term}' {once}, or `lazy: scale` if {loss.every} times is what you mean",
            )


def check_evaluated(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-EVAL for a lazy loss that evaluations return: in every so many batches, and multiplied."""
    reaches = find_reaches(graph.spec)
    for index, name in enumerate(graph.spec.outputs or ()):
        op = graph.spec.ops.get(name)
        if not isinstance(op, LossOp) or op.mode is not None or reaches[name].modes.isdisjoint(("eval", "test")):
            continue
        if op.times > 1:
            place = place_in(span_of(graph.spec, name))
            yield Diagnostic(
                code="W-EVAL",
                severity="warning",
                message=f"evaluations return '{name}' too: in one batch of {op.times}, multiplied by {op.times}",
                span=graph.spec.span("outputs", index),
                label="returned in every mode that computes it",
                help=f"write `mode: train` on '{name}'{place and f' ({place})'}, and return a loss without `every` for "
                "evaluations",
            )


def check_datasets(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-DATASET for an update that does not run on a data set on which some of its terms run."""
    datasets = find_datasets(graph.spec)
    places = find_places(graph.spec)
    found: dict[str, list[str]] = {}
    added: set[tuple[str, str]] = set()
    for update, op, term in _find_terms(graph.spec) if datasets else ():
        if op.dataset is None:
            added.add((update, term))
            found.setdefault(update, []).extend(each for each in _find_parts(graph.spec, term) if each in places)
    for update, terms in found.items():
        missed = [name for name in datasets if name not in places[update]]
        for name in [name for name in missed if any(name in places[term] for term in terms)][:1]:
            there = next(term for term in terms if name in places[term])
            absent = next((term for term in terms if name not in places[term]), terms[0])
            other = "one update for each loss" if (update, absent) in added else f"remove `dataset` from '{absent}'"
            yield Diagnostic(
                code="W-DATASET",
                severity="warning",
                message=f"'{update}' does not fire on batches of '{name}', where its term '{absent}' is absent, "
                f"although '{there}' is not",
                span=span_of(graph.spec, update),
                label=f"never runs on batches of '{name}'",
                help=f"write `dataset` on '{update}' if you mean this, else {other}",
            )


def _find_parts(spec: GraphSpec, term: str) -> tuple[str, ...]:
    """Return what calls make a term of, as a product of losses; the term itself where no loss is among that.

    A call with a `dataset` of its own is not taken apart.
    """
    found: dict[str, None] = {}
    seen, pending = {term}, [term]
    while pending:
        value = pending.pop()
        op = spec.ops.get(value)
        if isinstance(op, CallOp) and op.dataset is None:
            news = [each.name for each in op.operands() if each.name not in seen]
            seen.update(news)
            pending.extend(reversed(news))
        else:
            found[value] = None
    return tuple(found) if any(isinstance(spec.ops.get(value), LossOp) for value in found) else (term,)


def _find_terms(spec: GraphSpec) -> Iterator[tuple[str, UpdateOp, str]]:
    """Yield every update with each term of its losses."""
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            for term in dict.fromkeys(term for loss in find_set_losses(spec, name) for term in find_terms(spec, loss)):
                yield name, op, term

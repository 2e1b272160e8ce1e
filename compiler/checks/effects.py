"""Checks of what has no effect: W-NO-EFFECT, W-DEAD, `defer: never` where it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.causality import close_ordering, find_writers
from compiler.checks.context import Scene
from compiler.diagnose import span_of
from compiler.ir import Decision, Hazard, StepGraph
from compiler.ops.average import find_interval
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.ops import CopyOp, EmaOp, Op, UpdateOp


def check_no_effect(scene: Scene) -> Iterator[Diagnostic]:
    """Yield W-NO-EFFECT for an `after` without which every op would read the same versions."""
    consumers = _find_consumers(scene)
    for name, node in scene.nodes.items():
        for index, other in enumerate(scene.spec.ops[name].after or () if node.id == node.op else ()):
            if other not in scene.nodes or not scene.nodes[other].writes:
                continue
            if not _reads_behind(scene, name, other, consumers) and not _changes_versions(scene, name, other):
                yield Diagnostic(
                    code="W-NO-EFFECT",
                    severity="warning",
                    message=f"`after: {other}` on '{name}' changes nothing: every op reads the same without it",
                    span=scene.spec.span("ops", name, "after", index) or span_of(scene.spec, name),
                    label="no effect",
                    help=f"put it on the forward that should see the result of '{other}', or take it away",
                )


def _reads_behind(scene: Scene, name: str, other: str, consumers: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether an op, or something made from it, reads what another writes: the common case, and cheap to see."""
    written = {write.cell for write in scene.nodes[other].writes}
    return any(read.cell in written for reached in _reach(name, consumers) for read in scene.nodes[reached].reads)


def _changes_versions(scene: Scene, name: str, other: str) -> bool:
    """Return whether some node has other writers of a cell it touches in its past once one `after` is left out."""
    kept = [edge for edge in scene.ordering if (edge.before, edge.after, edge.hazard) != (other, name, Hazard.DECLARED)]
    without = close_ordering(scene.everything, kept)
    writers = find_writers(scene.nodes.values())
    for node in scene.nodes.values():
        for cell in {read.cell for read in node.reads} | {write.cell for write in node.writes}:
            known = writers.get(cell, ())
            if scene.causality.past(node.id, known) != without.past(node.id, known):
                return True
    return False


def check_interval(scene: Scene) -> Iterator[Diagnostic]:
    """Yield E-INTERVAL for an average whose half-life cannot be compounded, because its interval is not constant."""
    for name, op in scene.spec.ops.items():
        if isinstance(op, EmaOp) and op.correction == "compound" and find_interval(scene.spec, op) is None:
            yield Diagnostic(
                code="E-INTERVAL",
                message=f"how often '{op.ema}' is written between two firings of '{name}' is not a constant number",
                span=span_of(scene.spec, name, "every"),
                label="so the decay per firing has no one value",
                help="write `decay:` or `tau:`, which hold per firing, `interval_correction: none`, or a number, as "
                "in `every: 2`, which counts the updates that took place",
            )


def check_clip_scope(scene: Scene) -> Iterator[Diagnostic]:
    """Yield E-CLIP for a clip over given gradients that also cover models the update does not step."""
    for name, op in scene.spec.ops.items():
        if isinstance(op, UpdateOp) and op.clip is not None and op.gradients is not None:
            covered = {model for value in op.gradients for model in scene.sets.get(value, ())}
            others = sorted(covered.difference(op.update))
            if others:
                yield Diagnostic(
                    code="E-CLIP",
                    message=f"the clip of '{name}' would count gradients of {', '.join(others)} too",
                    span=span_of(scene.spec, name, "clip"),
                    label="over the gradients of its own models only",
                    help=f"take gradients for {', '.join(op.update)} alone, or clip the whole set with "
                    "`transform: clip_norm` before the updates",
                )


def check_dead(spec: GraphSpec, live: Mapping[str, frozenset[str]]) -> Iterator[Diagnostic]:
    """Yield W-DEAD for an op that fires in no mode, given the ops that fire by mode."""
    firing = frozenset[str]().union(*live.values())
    for name, op in spec.ops.items():
        if name not in firing:
            message, help = _tell_dead(name, op)
            span = span_of(spec, name)
            yield Diagnostic(
                code="W-DEAD", severity="warning", message=message, span=span, label="never runs", help=help
            )


def _tell_dead(name: str, op: Op) -> tuple[str, str]:
    """Return why an op never runs, and the remedy."""
    match op:
        case EmaOp(ema=source) | CopyOp(copy_=source):
            message = f"'{name}' never runs: nothing in the step writes its source '{source}'"
            return message, f"follow a model that an update, ema or copy writes, or take '{name}' away"
        case _:
            return f"nobody uses '{name}': it never runs", "use its value, list it under `outputs:`, or take it away"


def check_defer_never(spec: GraphSpec, graph: StepGraph, decisions: tuple[Decision, ...]) -> Iterator[Diagnostic]:
    """Yield E-DEFER for an update that says `defer: never` and must be deferred."""
    for decision in decisions:
        op = spec.ops.get(decision.subject)
        if decision.code == "DEFER" and isinstance(op, UpdateOp) and op.defer == "never":
            yield Diagnostic(
                code="E-DEFER",
                message=f"'{decision.subject}' says `defer: never`, but its write has to wait",
                span=span_of(spec, decision.subject, "defer"),
                notes=(decision.text,),
                label="cannot be",
                help="take `defer: never` away, write `snapshot: true` on the forward that is read later, or compile "
                "with `--order fewest`, which spares it where any order does",
            )


def _find_consumers(scene: Scene) -> Mapping[str, tuple[str, ...]]:
    """Return, by node, the nodes that use its values."""
    producers, consumers = scene.producers, dict[str, tuple[str, ...]]()
    for node in scene.nodes.values():
        for use in node.uses:
            producer = producers.get(use.value)
            if producer is not None:
                consumers[producer] = (*consumers.get(producer, ()), node.id)
    return consumers


def _reach(name: str, consumers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return a node and everything made from its values."""
    reached = {name: None}
    pending = [name]
    while pending:
        for other in consumers.get(pending.pop(), ()):
            if other not in reached:
                reached[other] = None
                pending.append(other)
    return tuple(reached)

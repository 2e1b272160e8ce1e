"""Weights and values that a backward reads after something has written them."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.trace import Backward, Draw, Forward, Place, StaleCast, Trace, Update, Write


def find_stale_reads(evidence: Evidence) -> Iterator[Finding]:
    """Yield the edges of the step's graph that the order breaks, with the compiler's sentence about each."""
    for broken in evidence.broken:
        needed = [read for read in broken.reads if read.needed]
        raised = any(read.raised for read in broken.reads)
        if needed:
            code = "stale-statistics" if broken.edge.cell and broken.edge.cell.cell.kind == "buffers" else "stale-read"
            end = (
                "PyTorch stops here"
                if raised
                else "PyTorch does not notice, and the gradient belongs to no version of them"
            )
        elif raised:
            code, end = "stale-read-unneeded", "PyTorch stops, although this gradient does not need the value"
        else:
            continue
        places = dict.fromkeys(read.place for read in needed or broken.reads)
        yield Finding(
            code=code,
            place=broken.writer.place,
            message=f"{broken.writer.what} makes {broken.cell} while the {broken.edge.why}; {end}",
            others=(
                *(Other("read by the forward at", place) for place in places),
                Other("read again by the backward at", broken.gradient.place),
            ),
        )


def find_overwritten_values(evidence: Evidence) -> Iterator[Finding]:
    """Yield the values, other than weights, that were written in place while a backward needed them."""
    for event in evidence.trace.of(Backward):
        for each in event.overwritten:
            end = "" if each.raised else "; PyTorch does not notice"
            yield Finding(
                code="stale-value",
                place=each.written,
                message=f"{each.operation} overwrites a value that the backward of line {event.place.line} needs{end}",
                others=(Other("saved by the forward at", each.place), Other("needed by the backward at", event.place)),
            )


def find_stale_recomputations(evidence: Evidence) -> Iterator[Finding]:
    """Yield recomputed forwards that see other weights, other random numbers, or write statistics once more."""
    trace = evidence.trace
    seen: dict[int, tuple[int, Place]] = {}
    drawn: dict[int, set[int]] = {}
    recomputing = {event.backward for event in trace.of(Forward)} - {0}
    for event in trace.events:
        match event:
            case Forward(backward=0, versions=versions, place=place):
                seen |= {tensor: (version, place) for tensor, version in versions}
            case Forward(backward=number, versions=versions) if number in evidence.backwards:
                for tensor, version in versions:
                    before, place = seen.get(tensor, (version, event.place))
                    if before != version:
                        yield _stale_recomputation(trace, tensor, before, place, evidence.backwards[number].place)
            case Draw(backward=0, layer=layer, state=state):
                drawn.setdefault(layer, set()).add(state)
            case Draw(layer=layer, state=state, backward=number) if number in recomputing:
                if drawn.get(layer) and state not in drawn[layer]:
                    yield Finding(
                        code="recompute-differs",
                        place=event.place,
                        message="the recomputation of a checkpointed forward draws other random numbers than it did",
                        others=(Other("recomputed by the backward at", evidence.backwards[number].place),),
                    )
            case Write(by="recompute", tensor=tensor) if trace.tensors[tensor].kind == "buffers":
                yield Finding(
                    code="state-per-forward",
                    place=event.place,
                    message=f"{trace.tensors[tensor].label} is written again when a backward recomputes its forward",
                )
            case _:
                pass


def _stale_recomputation(trace: Trace, tensor: int, version: int, forward: Place, backward: Place) -> Finding:
    writes = (each for each in trace.of(Write) if each.tensor == tensor and each.version > version)
    write = next(writes)
    writer = f"{write.writer}.step()" if write.by == "update" else write.writer
    return Finding(
        code="recompute-differs",
        place=write.place,
        message=f"{writer} writes {trace.tensors[tensor].label} before a backward recomputes a checkpointed forward "
        "that read the old version",
        others=(Other("forward at", forward), Other("recomputed by the backward at", backward)),
    )


def find_stale_casts(evidence: Evidence) -> Iterator[Finding]:
    """Yield forwards that read autocast's copy of weights from before their update."""
    for event in evidence.trace.of(StaleCast):
        yield Finding(
            code="stale-cast",
            place=event.place,
            message=f"autocast gives this forward the copy of {evidence.trace.tensors[event.tensor].label} that it "
            "made before the update",
            others=(Other("copied at", event.cast), Other("written at", event.written)),
        )


def find_alternations(evidence: Evidence) -> Iterator[Finding]:
    """Yield models that are called again after their update, for the loss of another model's."""
    trace = evidence.trace
    calls: dict[str, list[Forward]] = {}
    updated: dict[str, tuple[Update, list[Forward]]] = {}
    again: dict[str, tuple[Update, Forward, Forward]] = {}
    for event in trace.events:
        match event:
            case Forward(backward=0, model=model):
                update, earlier = updated.get(model, (None, list[Forward]()))
                before = next((each for each in earlier if each.inputs & event.inputs), None)
                if update is not None and before is not None:
                    again.setdefault(model, (update, before, event))
                calls.setdefault(model, []).append(event)
            case Update() if not event.overflow:
                stepped = {trace.model(part.tensor) for part in event.parts if part.has_gradient}
                for model, (update, before, after) in list(again.items()):
                    if model not in stepped and update.optimizer != event.optimizer:
                        yield Finding(
                            code="other-version",
                            place=after.place,
                            message=f"{model} is called again after {update.optimizer}.step(), and {event.optimizer} "
                            f"steps {' and '.join(sorted(stepped))} by that: alternating, not simultaneous, updates",
                            others=(
                                Other("first called at", before.place),
                                Other("updated at", update.place),
                                Other("used by the step at", event.place),
                            ),
                        )
                    del again[model]
                for model in stepped & calls.keys():
                    updated[model] = (event, calls.pop(model))
                for model in [each for each in updated if each not in stepped]:
                    del updated[model]
            case _:
                pass

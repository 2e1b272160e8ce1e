"""Graphs: kept for nothing, freed too early, cut, or carried into the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.trace import NOWHERE, Backward, Kept, Place, Replicated, Update


def find_freed(evidence: Evidence) -> Iterator[Finding]:
    """Yield backwards through a graph that an earlier one has freed, in this step or in the one before."""
    trace = evidence.trace
    for event in trace.of(Backward):
        if event.freed is None or "second time" not in event.error:
            continue
        earlier = evidence.backwards[event.freed.backward]
        between = trace.events[earlier.start : event.start]
        crosses = earlier.place == event.place and any(isinstance(each, Update) for each in between)
        computed = event.freed.computed
        yield Finding(
            code="crossing-graph" if crosses else "freed-graph",
            place=computed if crosses and computed != NOWHERE else event.place,
            message="a value carries its graph from one step into the next: detach it"
            if crosses
            else f"this loss runs through a part of the graph that the backward of line {earlier.place.line} has freed",
            others=(
                *([Other("the shared part was computed at", computed)] if computed != NOWHERE else []),
                Other("freed by the backward at", earlier.place),
                *([Other("needed by the backward at", event.place)] if crosses else []),
            ),
        )


def find_needless_retains(evidence: Evidence) -> Iterator[Finding]:
    """Yield graphs that are kept although no later backward runs through them."""
    needed = {number for event in evidence.trace.of(Backward) for number in event.through}
    by_place: dict[Place, list[Backward]] = defaultdict(list)
    for event in evidence.trace.of(Backward):
        if event.retain and not event.create:
            by_place[event.place].append(event)
    for place, events in by_place.items():
        if not any(event.number in needed for event in events) and not any(event.error for event in events):
            yield Finding(
                code="needless-retain",
                place=place,
                message="retain_graph=True, but no later backward runs through this graph",
                times=len(events),
            )


def find_kept(evidence: Evidence) -> Iterator[Finding]:
    """Yield losses that are kept with their graphs for later steps, as a sum of losses keeps them."""
    for event in evidence.trace.of(Kept):
        is_sum = event.place != event.backward
        yield Finding(
            code="crossing-graph",
            place=event.place,
            message="the losses of earlier steps are still there, with their graphs: add up loss.detach() instead"
            if is_sum
            else "the loss of this backward is still there two steps later, with its graph: keep loss.detach() instead",
            others=(Other("the backward at", event.backward),) if is_sum else (),
            level="waste",
        )


def find_cuts(evidence: Evidence) -> Iterator[Finding]:
    """Yield values in a loss whose graph was cut where the loss needs it."""
    cuts = ((each, event.place) for event in evidence.trace.of(Backward) for each in event.cuts)
    for cut, place in cuts:
        loss = (Other("the loss at", place),)
        match cut.kind:
            case "no_grad":
                yield Finding(
                    code="dead-term",
                    place=cut.place,
                    message=f"{cut.what} runs under no_grad on a value that has a gradient, and its result is a part "
                    "of this loss: nothing flows back through it; "
                    + ("right for a baseline or target, else " if cut.elsewhere else "")
                    + "freeze its weights instead",
                    others=loss,
                    level="question" if cut.elsewhere else None,
                )
            case "no_create_graph":
                yield Finding(
                    code="dead-term",
                    place=cut.place,
                    message="this gradient is a part of a loss, but was taken without create_graph=True: a constant",
                    others=loss,
                )
            case "first_order":
                yield Finding(
                    code="cut-meta-gradient",
                    place=cut.place,
                    message="this gradient makes a step of weights that a loss is taken through, without "
                    "create_graph=True: the step is of first order",
                    others=loss,
                )
            case "dead_term":
                yield Finding(
                    code="dead-term",
                    place=cut.place,
                    message="a term of this loss has no gradient: all that it is made of is detached here, or constant",
                    others=loss,
                )
            case "detached":
                pass


def find_compiled_second_derivatives(evidence: Evidence) -> Iterator[Finding]:
    """Yield second derivatives through compiled models, which PyTorch refuses."""
    for event in evidence.trace.of(Backward):
        if "double backward" in event.error:
            yield Finding(
                code="compiled-second-derivative",
                place=event.place,
                message="this loss differentiates a gradient through a compiled model, which PyTorch does not support: "
                "call the model that is not compiled there",
            )


def find_replicas(evidence: Evidence) -> Iterator[Finding]:
    """Yield gradients that DistributedDataParallel does not reduce, or not as meant."""
    for event in evidence.trace.of(Replicated):
        others = (Other("first forward at", event.other),) if event.other is not None else ()
        match event.event:
            case "two-forwards":
                code, text = (
                    "ddp-forwards",
                    "a second forward before the backward of the first: the second backward is not",
                )
            case "grad":
                code, text = "unreduced-grad", "autograd.grad bypasses the hooks of the model: these gradients are not"
            case "bypassed":
                code, text = "unreduced-grad", "this forward goes past DistributedDataParallel: its gradients are not"
            case "late-no-sync":
                yield Finding(
                    code="no-sync-scope",
                    place=event.place,
                    message="no_sync() around the backward alone does nothing: it has to wrap the forward",
                    others=others,
                )
                continue
        message = f"{text} reduced over the processes ({event.model})"
        yield Finding(code=code, place=event.place, message=message, others=others)

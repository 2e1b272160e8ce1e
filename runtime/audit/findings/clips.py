"""Clips: of which gradients, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.gradients import Changed
from runtime.audit.trace import Place


def _clips(evidence: Evidence) -> Iterator[tuple[str, Place, list[Changed]]]:
    """Yield the calls that change gradients: function, line, and the change of every tensor."""
    run: list[Changed] = []
    for each in evidence.ledger.changes:
        if each.event.change != "changed":
            continue
        same = run and (run[-1].event.place, run[-1].event.function) == (each.event.place, each.event.function)
        if run and not (same and each.position - run[-1].position == 1):
            yield run[0].event.function, run[0].event.place, run
            run = []
        run.append(each)
    if run:
        yield run[0].event.function, run[0].event.place, run


def find_clips(evidence: Evidence) -> Iterator[Finding]:
    """Yield clips over too much, before gradients are complete or divided by the loss scale, or after their update."""
    for function, place, changes in _clips(evidence):
        tensors = {each.event.tensor for each in changes}
        models = sorted({evidence.trace.model(tensor) for tensor in tensors})
        steppers: dict[str, set[str]] = defaultdict(set)
        for tensor in tensors & evidence.steppers.keys():
            steppers[evidence.trace.model(tensor)] |= evidence.steppers[tensor]
        # One model may have several optimizers, such as one for its matrices and one for the rest.
        if "norm" in function and any(one.isdisjoint(other) for one, other in combinations(steppers.values(), 2)):
            yield Finding(
                code="clip-scope",
                place=place,
                message=f"one norm over the gradients of {' and '.join(models)}, which different optimizers step: a "
                "long gradient of one shortens the other's",
            )
        shares = [(each.position, share) for each in changes for share in each.held if share.backward is not None]
        before = [s for at, s in shares if s.unscaled is None or s.unscaled >= at]
        scaled = next((s for s in before if s.backward and s.backward.scale), None)
        if scaled is not None and scaled.backward is not None:
            yield Finding(
                code="clip-scaled",
                place=place,
                message=f"{function} changes gradients that still carry the loss scale ({scaled.backward.scale:g}): "
                "unscale_() has to come first",
                others=(Other("the scaled backward at", scaled.backward.place),),
            )
        done = [[u for u in s.uses if not u.skipped and u.position < at] for at, s in shares]
        if done and all(done):
            yield Finding(
                code="clip-order",
                place=place,
                message=f"{function} changes gradients of {' and '.join(models)} that have been applied already",
                others=(Other("applied at", done[0][0].place),),
            )
        elif "clip" in function:
            yield from _find_early(evidence, function, place, changes)


def _find_early(evidence: Evidence, function: str, place: Place, changes: list[Changed]) -> Iterator[Finding]:
    """Yield a clip after which another backward adds to the gradient before it is applied."""
    tensors = {each.event.tensor for each in changes}
    for applied in evidence.ledger.updates:
        for tensor in tensors & applied.held.keys():
            shares = applied.held[tensor]
            clipped = [share for share in shares if (place, function) in share.clips]
            later = [share for share in shares if share.position > changes[-1].position and share.backward is not None]
            if clipped and later and any(share.position < changes[0].position for share in clipped):
                assert later[0].backward is not None
                yield Finding(
                    code="clip-order",
                    place=place,
                    message=f"{function} changes a gradient to which more is added before the update applies it: each "
                    "part is clipped, and their sum is not",
                    others=(
                        Other("added to by the backward at", later[0].backward.place),
                        Other("applied at", applied.event.place),
                    ),
                    level="warning",
                )
                return

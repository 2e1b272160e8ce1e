"""Loss scalers: what carries the scale, and when it moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.gradients import Share
from runtime.audit.trace import Backward, Place, ScaledTwice, ScalerStep, ScalerUpdate, Unscale, Update


def find_scaled_updates(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates by gradients that still carry the scale."""
    for applied in evidence.ledger.updates:
        shares = [share for each in applied.held.values() for share in each]
        scaled = [s for s in shares if s.backward is not None and s.backward.scale and s.unscaled is None]
        if scaled and not applied.event.unscales and scaled[0].backward is not None:
            yield Finding(
                code="scaled-step",
                place=applied.event.place,
                message=f"{applied.event.optimizer} steps by gradients that still carry the loss scale",
                others=(Other("the scaled backward at", scaled[0].backward.place),),
            )


def find_unguarded_steps(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates by gradients that a scaler has divided, past the scaler, which alone skips what is not finite."""
    events = evidence.trace.events
    for applied in evidence.ledger.updates:
        divided = {tensor for tensor, held in applied.held.items() if any(each.unscaled is not None for each in held)}
        later = (each for each in events[applied.position + 1 :] if isinstance(each, Update | ScalerStep))
        following = next(later, None)
        if isinstance(following, ScalerStep) and divided & {*following.tensors}:
            continue
        positions = [each.unscaled for tensor in divided for each in applied.held[tensor] if each.unscaled is not None]
        if positions:
            yield Finding(
                code="unguarded-step",
                place=applied.event.place,
                message=f"{applied.event.optimizer} steps past the scaler, which would skip the step where gradients "
                "are not finite: call scaler.step(), unless the program checks them itself",
                others=(Other("divided by the scale at", events[positions[0]].place),),
            )


def find_unscaled_losses(evidence: Evidence) -> Iterator[Finding]:
    """Yield divisions by the scale of gradients whose loss was not multiplied by it."""
    held: dict[int, list[Share]] = defaultdict(list)
    shares = sorted(evidence.ledger.shares, key=lambda share: share.position)
    for position, event in enumerate(evidence.trace.events):
        if not isinstance(event, Unscale):
            continue
        held = defaultdict(list)
        for share in shares:
            if share.position < position and (share.end is None or share.end.position > position):
                held[share.tensor].append(share)
        plain = [
            share
            for tensor in event.tensors
            for share in held[tensor]
            if share.backward is not None and share.backward.scale is None and share.unscaled == position
        ]
        if plain and plain[0].backward is not None and event.scale != 1.0:
            yield Finding(
                code="unscaled-loss",
                place=plain[0].backward.place,
                message=f"the scaler divides these gradients by its scale ({event.scale:g}), but the loss was not "
                "multiplied by it",
                others=(Other("divided at", event.place),),
            )


def find_scaled_penalties(evidence: Evidence) -> Iterator[Finding]:
    """Yield losses made of gradients that carry the scale."""
    last: Backward | None = None
    for event in evidence.trace.events:
        if isinstance(event, Backward) and not event.accumulates and event.scale is not None:
            last = event
        if isinstance(event, ScaledTwice) and last is not None:
            yield Finding(
                code="scaled-penalty",
                place=last.place,
                message=f"these gradients carry the loss scale ({event.scale:g}) and become a part of a loss: divide "
                "them by it first",
                others=(Other("the loss is scaled again at", event.place),),
            )


def find_scaler_updates(evidence: Evidence) -> Iterator[Finding]:
    """Yield scales that move between a backward and its step, once for each optimizer, or never."""
    trace = evidence.trace
    users: dict[int, set[str]] = defaultdict(set)
    for event in trace.of(ScalerStep):
        users[event.scaler].add(event.optimizer)
    since: dict[tuple[int, str], list[Place]] = {}
    often: dict[int, dict[str, tuple[Place, Place]]] = defaultdict(dict)
    moved: list[tuple[int, ScalerUpdate]] = []
    for position, event in enumerate(trace.events):
        match event:
            case ScalerUpdate():
                moved.append((position, event))
                for key, places in since.items():
                    if key[0] == event.scaler:
                        places.append(event.place)
            case ScalerStep(error=""):
                places = since.get((event.scaler, event.optimizer), [])
                if len(places) > 1:
                    often[event.scaler].setdefault(event.optimizer, (places[0], event.place))
                since[event.scaler, event.optimizer] = []
                yield from _find_early_update(evidence, event, position, moved)
            case ScalerStep(error=text) if "update()" in text:
                yield Finding(
                    code="scaler-update",
                    place=event.place,
                    message="the scaler is never updated: update() has to follow the steps",
                )
            case ScalerStep(error=text) if "unscale_()" in text:
                yield Finding(
                    code="scaler-update",
                    place=event.place,
                    message=f"the scaler refuses the order of its calls: {text}",
                )
            case _:
                pass
    for scaler, found in often.items():
        if len(users[scaler]) > 1 and found.keys() == users[scaler]:
            update, step = next(iter(found.values()))
            yield Finding(
                code="scaler-update",
                place=update,
                message="the scale is updated once for every optimizer, not once after all of them: it moves too often",
                others=(Other("step at", step),),
                level="warning",
            )


def _find_early_update(
    evidence: Evidence, event: ScalerStep, position: int, moved: list[tuple[int, ScalerUpdate]]
) -> Iterator[Finding]:
    """Yield an update of the scale between the backward of some gradients and their step."""
    if not moved or moved[-1][1].scaler != event.scaler:
        return
    at, update = moved[-1]
    for share in evidence.ledger.shares:
        backward = share.backward
        if backward is None or backward.scale is None or share.tensor not in event.tensors:
            continue
        is_late = share.unscaled is None or at < share.unscaled <= position
        if share.position < at and is_late and any(use.position >= at for use in share.uses):
            yield Finding(
                code="scaler-update",
                place=update.place,
                message=f"the scale is updated between the backward of line {backward.place.line} and the step of "
                f"{event.optimizer}, which divides by another scale than the loss was multiplied by",
                others=(Other("the scaled backward at", backward.place), Other("step at", event.place)),
            )
            return


def find_partial_skips(evidence: Evidence) -> Iterator[Finding]:
    """Yield steps that one optimizer skips for overflow while another of the same scaler takes it."""
    steps: dict[int, list[ScalerStep]] = defaultdict(list)
    for event in evidence.trace.events:
        match event:
            case ScalerStep(error=""):
                steps[event.scaler].append(event)
            case ScalerUpdate():
                found = steps.pop(event.scaler, [])
                skipped = [each for each in found if each.skipped]
                taken = [each for each in found if not each.skipped]
                if skipped and taken:
                    yield Finding(
                        code="partial-skip",
                        place=skipped[0].place,
                        message=f"{skipped[0].optimizer} skips a step for overflow that {taken[0].optimizer} takes",
                        others=(Other("taken at", taken[0].place),),
                    )
            case _:
                pass


def find_fused_skips(evidence: Evidence) -> Iterator[Finding]:
    """Yield skipped steps after which the state of a fused optimizer is another nevertheless."""
    for event in evidence.trace.of(Update):
        if event.overflow and event.state_written:
            yield Finding(
                code="fused-skip",
                place=event.place,
                message=f"this step is skipped for overflow, but the state of {event.optimizer} is another after it: "
                "its fused kernel has written it, or left new memory without a value",
            )

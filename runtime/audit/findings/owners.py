"""Who steps which tensors: no optimizer, one, or two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.findings.gradients import find_time_share
from runtime.audit.trace import Backward, Forward, Place, Update


def find_steps_without_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Yield optimizers none of whose steps has found a gradient."""
    moving = {each.event.optimizer for each in evidence.ledger.updates if any(p.has_gradient for p in each.event.parts)}
    for applied in evidence.ledger.updates:
        event = applied.event
        if event.optimizer in moving or event.closure or any(applied.dropped.values()):
            continue
        frozen = all(not part.required for part in event.parts)
        why = "its parameters do not require gradients" if frozen else "no backward has reached its parameters"
        before = [each.place for each in evidence.trace.events[: applied.position] if isinstance(each, Backward)]
        yield Finding(
            code="untrained",
            place=event.place,
            message=f"{event.optimizer}.step() moves nothing: {why}",
            others=(Other("the last backward was at", before[-1]),) if before else (),
        )


def find_never_stepped(evidence: Evidence) -> Iterator[Finding]:
    """Yield optimizers that are not stepped although a backward gives their parameters gradients."""
    counts = Counter(each.event.optimizer for each in evidence.ledger.updates)
    if max(counts.values(), default=0) < 2:
        return
    for optimizer in evidence.trace.optimizers:
        if counts[optimizer.name]:
            continue
        shares = [
            share
            for share in evidence.ledger.shares
            if share.tensor in optimizer.tensors
            and share.tensor not in evidence.steppers
            and share.backward is not None
            and not share.uses
        ]
        own = (
            each for each in shares if each.backward and {g.tensor for g in each.backward.gains} <= optimizer.tensors
        )
        share = next(chain(own, shares), None)  # rather a loss of its own than one that other models are trained by
        if share is not None and share.backward is not None:
            model = evidence.trace.model(share.tensor)
            yield Finding(
                code="untrained",
                place=share.backward.place,
                message=f"{model} gets gradients here, but {optimizer.name} is never stepped",
                level="warning",
            )


def find_orphans(evidence: Evidence) -> Iterator[Finding]:
    """Yield parameters that get gradients and are in no optimizer, while others of their model are in one.

    Where only the first layers are left out, a pretrained part may be kept as it is: that costs time and no more.
    """
    if not evidence.ledger.updates:
        return
    owned = {tensor for each in evidence.trace.optimizers for tensor in each.tensors} | set(evidence.steppers)
    first: dict[int, Place] = {}
    used = set[int]()
    for share in evidence.ledger.shares:
        if share.backward is not None:
            first.setdefault(share.tensor, share.backward.place)
        if share.uses or share.read:
            used.add(share.tensor)
    roots = {evidence.trace.model(tensor) for tensor in owned}
    groups: dict[str, list[int]] = defaultdict(list)
    for tensor in first.keys() - owned - used:
        model = evidence.trace.model(tensor)
        root = next((each for each in roots if model == each or model.startswith((f"{each}.", f"{each}["))), None)
        if root is not None and evidence.trace.tensors[tensor].kind == "params":
            groups[root].append(tensor)
    for root, tensors in groups.items():
        of_root = [each for each in owned if evidence.trace.model(each) == root]
        is_first = max(tensors) < min(of_root) and all(evidence.trace.model(each) == root for each in tensors)
        labels = [evidence.trace.tensors[tensor].label for tensor in sorted(tensors)]
        shown = ", ".join(labels[:3]) + (" and others" if len(labels) > 3 else "")
        steps = [each.event.place for each in evidence.ledger.updates]
        shares = [share for share in evidence.ledger.shares if share.tensor in tensors]
        yield Finding(
            code="untrained",
            place=first[min(tensors)],
            message=f"{shown} get gradients here, but no optimizer has them",
            others=(Other("stepped without them at", steps[0]),),
            share=find_time_share(evidence, shares) if is_first else None,
            level="waste" if is_first else "warning",
        )


def find_unreached(evidence: Evidence) -> Iterator[Finding]:
    """Yield losses to which nothing leads that could be trained."""
    for event in evidence.trace.of(Backward):
        if "does not require grad" in event.error:
            yield Finding(
                code="untrained",
                place=event.place,
                message="nothing that can be trained leads to this loss: all of it is detached, frozen, or was "
                "computed without a graph",
            )


def find_unreached_parameters(evidence: Evidence) -> Iterator[Finding]:
    """Yield models, or parts of them, that run, are stepped, and never have a gradient then, while others do."""
    gained = {gain.tensor for event in evidence.trace.of(Backward) for gain in event.gains}
    moving = {part.tensor for event in evidence.trace.of(Update) for part in event.parts if part.has_gradient}
    called = {event.model: event for event in evidence.trace.of(Forward) if event.trainable and not event.backward}
    recorded = {event.model for event in evidence.trace.of(Forward) if event.recorded}
    seen = set[str]()
    for applied in evidence.ledger.updates:
        event = applied.event
        if event.closure or not any(part.has_gradient for part in event.parts):
            continue
        idle = [part.tensor for part in event.parts if part.required and part.tensor not in moving]
        for model in sorted({evidence.trace.model(tensor) for tensor in idle} & called.keys() - seen):
            seen.add(model)
            labels = [evidence.trace.tensors[tensor].label for tensor in idle if evidence.trace.model(tensor) == model]
            shown = ", ".join(labels[:3]) + (" and others" if len(labels) > 3 else "")
            yield Finding(
                code="untrained",
                place=event.place,
                message=f"{event.optimizer} has {shown}, and {model} runs, but "
                + (
                    "their gradients are dropped before each of its steps"
                    if gained.issuperset(each for each in idle if evidence.trace.model(each) == model)
                    else "no loss has ever reached them"
                    if model in recorded
                    else "without a graph alone, so no loss reaches them"
                ),
                others=(Other("it runs at", called[model].place),),
                level="question",
            )


def find_shared(evidence: Evidence) -> Iterator[Finding]:
    """Yield parameters that are twice in an optimizer, or that two optimizers step."""
    for event in evidence.trace.of(Update):
        if event.repeated:
            yield Finding(
                code="shared-parameter",
                place=event.place,
                message=f"a parameter is in {event.optimizer} twice, and moves twice in every step",
                level="error",
            )
    seen: dict[tuple[str, str, str], Finding] = {}
    last: dict[int, dict[str, Place]] = defaultdict(dict)
    for applied in evidence.ledger.updates:
        event = applied.event
        for part in (each for each in event.parts if each.has_gradient):
            for other, place in last[part.tensor].items():
                if other == event.optimizer:
                    continue
                model = evidence.trace.model(part.tensor)
                twice = any(
                    use.optimizer == other and use.position < applied.position
                    for share in applied.held[part.tensor]
                    for use in share.uses
                )
                how = "by the same gradient twice" if twice else "with a state of its own in each"
                one, two = sorted((other, event.optimizer))
                key = (model, one, two)
                if key not in seen or (twice and seen[key].level != "error"):
                    seen[key] = Finding(
                        code="shared-parameter",
                        place=event.place,
                        message=f"{model} is stepped by {other} and by {event.optimizer}, {how}",
                        others=(Other("the other step at", place),),
                        level="error" if twice else None,
                    )
            last[part.tensor][event.optimizer] = event.place
    yield from seen.values()


def find_idle_moves(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates that move tensors whose gradient is zero because nothing has been added to it."""
    for event in evidence.trace.of(Update):
        moved = [part.tensor for part in event.parts if part.moved]
        if moved:
            models = dict.fromkeys(evidence.trace.model(tensor) for tensor in moved)
            yield Finding(
                code="frozen-moves",
                place=event.place,
                message=f"{event.optimizer}.step() moves {' and '.join(models)} although no loss has given a gradient: "
                "zeros are not None, and momentum and weight decay act on them",
            )

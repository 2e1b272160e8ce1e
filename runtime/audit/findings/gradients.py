"""What is in a gradient when it is applied: too much, too little, or another loss's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.gradients import Applied, Share, Use
from runtime.audit.trace import Backward, Forward, GradientChange, GradientUse, Place, Update

_OPPOSED = -0.2
"""The cosine below which two gradients pull against each other."""


def _uses(share: Share, before: int | None = None) -> list[Use]:
    """Return where a contribution was applied, before a position."""
    return [use for use in share.uses if not use.skipped and (before is None or use.position < before)]


def _by_model(evidence: Evidence, applied: Applied) -> dict[str, list[tuple[Share, ...]]]:
    """Return what an update applies, by model."""
    models: dict[str, list[tuple[Share, ...]]] = defaultdict(list)
    for tensor, shares in applied.held.items():
        if shares:
            models[evidence.trace.model(tensor)].append(shares)
    return models


def find_applied_again(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates that apply a gradient which the same optimizer has applied before."""
    for applied in evidence.ledger.updates:
        name = applied.event.optimizer
        for model, held in _by_model(evidence, applied).items():
            again = [
                (use, shares[-1])
                for shares in held
                for share in shares
                for use in _uses(share, applied.position)
                if (use.optimizer == name and not applied.event.closure)
                or (
                    use.optimizer in ("", name)
                    # another backward added to the gradient after that
                    and any(other.backward is not None and other.backward.start > use.position for other in shares)
                )
            ]
            if again:
                use, last = again[0]
                added = last.backward
                yield Finding(
                    code="leftover-grad",
                    place=applied.event.place,
                    message=f"{name} applies gradients of {model} that it has applied before: they were not zeroed",
                    others=(
                        Other("first applied at", use.place),
                        *([Other("added to by the backward at", added.place)] if added is not None else []),
                    ),
                )


def find_leftovers(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates that apply, with their own gradient, what the loss of another model has left in `.grad`.

    The other optimizer has applied that loss already, before this one's backward; and this one's loss is not for it.
    """
    uses = find_uses(evidence)
    for applied in evidence.ledger.updates:
        name = applied.event.optimizer
        for model, held in _by_model(evidence, applied).items():
            found = next(filter(None, (find_foreign(shares, name, uses) for shares in held)), None)
            if found is not None:
                share, use, last = found
                assert share.backward is not None
                yield Finding(
                    code="leftover-grad",
                    place=applied.event.place,
                    message=f"{name} applies to {model} what another loss has left in its gradient; "
                    f"{use.optimizer}.step() had applied that loss before",
                    others=(
                        Other("left by the backward at", share.backward.place),
                        Other("applied at", use.place),
                        Other("added to by the backward at", last.place),
                    ),
                )


def find_uses(evidence: Evidence) -> dict[str, dict[int, Use]]:
    """Return by optimizer the backwards whose gradients it applies, with the first time."""
    found: dict[str, dict[int, Use]] = defaultdict(dict)
    for share in evidence.ledger.shares:
        for use in _uses(share):
            if share.backward is not None and use.optimizer:
                first = found[use.optimizer].setdefault(share.backward.number, use)
                found[use.optimizer][share.backward.number] = min(first, use, key=lambda each: each.position)
    return found


def find_foreign(
    shares: tuple[Share, ...], name: str, uses: dict[str, dict[int, Use]]
) -> tuple[Share, Use, Backward] | None:
    """Return a contribution of another optimizer's loss, where it was applied, and the backward that came after."""
    last = shares[-1].backward
    for share in shares[:-1] if last is not None else ():
        for other, first in uses.items():
            use = first.get(share.backward.number) if share.backward is not None else None
            if other == name or use is None or last is None:
                continue
            if use.position < last.start and last.number not in first:
                return share, use, last
    return None


def find_leaks(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates with the gradients of two losses, the first of which another model was deliberately spared."""
    by_backward: dict[int, list[Share]] = defaultdict(list)
    for share in evidence.ledger.shares:
        if share.backward is not None:
            by_backward[share.backward.number].append(share)
    always_opposed = _find_opposed(evidence)
    for applied in evidence.ledger.updates:
        name = applied.event.optimizer
        for model, held in _by_model(evidence, applied).items():
            pairs = {
                (one.backward.number, other.backward.number)
                for shares in held
                for one in shares
                for other in shares
                if one.backward is not None
                and other.backward is not None
                and one.backward.number != other.backward.number
            }
            for spared, leaking in sorted(pairs):
                victim = _find_spared(evidence, by_backward[spared], by_backward[leaking], name)
                if victim is None:
                    continue
                first, second = evidence.backwards[spared], evidence.backwards[leaking]
                opposed = (name, model) in always_opposed
                yield Finding(
                    code="leaked-grad",
                    place=second.place,
                    message=f"this loss, which {victim[1]} applies to {victim[0]}, reaches {model} as well, and {name} "
                    f"applies it with its own: a detach() is missing" + ("" if opposed else ", unless both are meant"),
                    others=(Other("its own loss at", first.place), Other("both applied at", applied.event.place)),
                    level=None if opposed else "question",
                )
                break


def _find_spared(
    evidence: Evidence, spared: Iterable[Share], leaking: Iterable[Share], name: str
) -> tuple[str, str] | None:
    """Return a model that lost the first loss's gradient unused and had the second's applied by another optimizer."""
    lost = {share.tensor for share in spared if share.end is not None and not _uses(share)}
    for share in leaking:
        users = {use.optimizer for use in _uses(share)} - {name, ""}
        if share.tensor in lost and users:
            return evidence.trace.model(share.tensor), min(users)
    return None


def _find_opposed(evidence: Evidence) -> set[tuple[str, str]]:
    """Return the optimizers and models whose gradients of two losses pull against each other, over all updates.

    Those of several tasks do so now and then.
    """
    found: dict[tuple[str, str], list[tuple[Share, ...]]] = defaultdict(list)
    for applied in evidence.ledger.updates:
        for model, held in _by_model(evidence, applied).items():
            found[applied.event.optimizer, model] += held
    return {key for key, held in found.items() if _cosine(held) < _OPPOSED}


def _cosine(held: Iterable[tuple[Share, ...]]) -> float:
    """Return the cosine between what was in some gradients and what was added to them."""
    gains = [share.gain for shares in held for share in shares[1:] if share.gain is not None]
    product, old, new = (sum(getattr(gain, part) for gain in gains) for part in ("product", "old", "new"))
    return product / (old * new) ** 0.5 if old > 0 and new > 0 else 0.0


def find_mixtures(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates by two losses, of which another optimizer's model has only one.

    The two pull against each other, or judge one value that the other model has made. The loss that both have is the
    other model's; whether it is meant here too cannot be seen, but it is rare.
    """
    uses = find_uses(evidence)
    reached: dict[str, set[int]] = defaultdict(set)
    for share in evidence.ledger.shares:
        if share.backward is not None:
            for name in evidence.steppers.get(share.tensor, ()):
                reached[name].add(share.backward.number)
    opposed = _find_opposed(evidence)
    for applied in evidence.ledger.updates:
        name = applied.event.optimizer
        for model, held in _by_model(evidence, applied).items():
            is_opposed = (name, model) in opposed
            numbers = {share.backward.number for shares in held for share in shares if share.backward is not None}
            for other in uses.keys() - {name}:
                both, alone = numbers & uses[other].keys(), numbers - reached[other]
                if not both or not alone or any(find_foreign(shares, name, uses) for shares in held):
                    continue
                is_doubtful = is_opposed or _cosine(held) < _OPPOSED
                if is_doubtful or _judges_twice(evidence, model, other, applied.position):
                    first, second = evidence.backwards[min(both)], evidence.backwards[min(alone)]
                    yield Finding(
                        code="leaked-grad",
                        place=first.place,
                        message=f"{name} steps {model} by this loss, which {other} applies, and by another, "
                        + ("and the two pull against each other" if is_doubtful else "both of one value of its model")
                        + ": a detach() or zero_grad() may be missing",
                        others=(
                            Other("the other loss at", second.place),
                            Other("both applied at", applied.event.place),
                        ),
                        level="warning" if is_opposed else "question",
                    )


def _judges_twice(evidence: Evidence, model: str, other: str, position: int) -> bool:
    """Return whether a model is called twice on one value that a model of another optimizer has made."""
    makers = {evidence.trace.model(tensor) for tensor, names in evidence.steppers.items() if other in names} - {model}
    made, seen = set[int](), set[int]()
    for event in evidence.trace.events[:position]:
        match event:
            case Forward(model=name, outputs=outputs) if name in makers:
                made |= outputs
                seen -= outputs
            case Forward(model=name, inputs=inputs, recorded=True) if name == model:
                if seen & inputs:
                    return True
                seen |= inputs & made
            case _:
                pass
    return False


def find_undetached_targets(evidence: Evidence) -> Iterator[Finding]:
    """Yield regressions whose target is made of the weights that an update moves by them, as its other side is."""
    moved: dict[tuple[int, Place], set[str]] = defaultdict(set)
    for share in evidence.ledger.shares:
        if share.backward is None or not _uses(share):
            continue
        for place, tensors in share.backward.regressions:
            if share.tensor in tensors:
                moved[share.backward.number, place].add(evidence.trace.model(share.tensor))
    for (number, place), models in moved.items():
        yield Finding(
            code="undetached-target",
            place=place,
            message=f"both sides of this loss have a gradient to {' and '.join(sorted(models))}, so that the target "
            "moves towards the estimate, too: detach() it, unless both are meant to move",
            others=(Other("the backward at", evidence.backwards[number].place),),
        )


def find_zeroed(evidence: Evidence) -> Iterator[Finding]:
    """Yield updates whose gradients were zeroed after their backward."""
    for applied in evidence.ledger.updates:
        dropped = [
            share for shares in applied.dropped.values() for share in shares if share.backward is not None and share.end
        ]
        if applied.event.closure or not dropped:
            continue
        if applied.is_live:
            yield from _find_partly_zeroed(applied, dropped)
            continue
        last = max(dropped, key=lambda share: share.position)
        assert last.backward is not None
        assert last.end is not None
        yield Finding(
            code="zeroed-grad",
            place=last.end.place,
            message=f"{applied.event.optimizer}.step() finds no gradient: what line {last.backward.place.line} "
            "computed was zeroed before",
            others=(Other("computed by the backward at", last.backward.place), Other("step at", applied.event.place)),
        )


def _find_partly_zeroed(applied: Applied, dropped: list[Share]) -> Iterator[Finding]:
    """Yield a zeroing between the backwards of one loss: of an accumulated gradient only the last part is left."""
    held = {(share.tensor, share.backward.place) for each in applied.held.values() for share in each if share.backward}
    for share in dropped:
        if share.backward is None or share.end is None or share.read:
            continue
        if (share.tensor, share.backward.place) in held:
            yield Finding(
                code="zeroed-grad",
                place=share.end.place,
                message=f"of what line {share.backward.place.line} computes, {applied.event.optimizer} applies only "
                "the last part: the others are zeroed before",
                others=(Other("computed at", share.backward.place), Other("step at", applied.event.place)),
                level="warning",
            )
            return


def find_lost(evidence: Evidence) -> Iterator[Finding]:
    """Yield backwards whose gradients, all or those of a model, no update has applied."""
    if not any(update.event.parts for update in evidence.ledger.updates):
        return
    zeroed = {
        share.backward.number
        for each in evidence.ledger.updates
        for shares in each.dropped.values()
        for share in shares
        if share.backward and not each.is_live
    }
    times = Counter(share.tensor for share in evidence.ledger.shares)
    places: dict[Place, dict[str, list[Share]]] = defaultdict(lambda: defaultdict(list))
    for share in evidence.ledger.shares:
        stored = evidence.trace.tensors[share.tensor]
        if not stored.name and (times[share.tensor] < 2 or not stored.model):
            continue  # an input of one step, of which a gradient is taken
        if share.backward is not None and share.backward.number not in zeroed:
            places[share.backward.place][evidence.trace.model(share.tensor)].append(share)
    for place, models in places.items():
        # The rest is open: the program ended before an optimizer could apply or drop it.
        settled = {
            name: [
                share for share in each if share.uses or share.end is not None or share.tensor not in evidence.steppers
            ]
            for name, each in models.items()
        }
        lost = {name: each for name, each in settled.items() if each and all(_is_lost(evidence, one) for one in each)}
        if not lost:
            continue
        names, shares = ", ".join(lost), [share for each in lost.values() for share in each]
        ended = next((share.end for share in shares if share.end is not None), None)
        fate = "zeroed before any optimizer has applied them" if ended is not None else "in no optimizer"
        is_whole = len(lost) == len(models)
        output = "its output" if len(lost) == 1 else "their outputs"
        advice = "" if is_whole else f": freeze {names} there, detach {output}, or give backward(inputs=...)"
        yield Finding(
            code="lost-grad",
            place=place,
            message=f"this backward computes gradients of {names} that are {fate}{advice}",
            others=(Other("zeroed at", ended.place),) if ended is not None else (),
            times=len({share.backward.number for share in shares if share.backward is not None}),
            share=find_time_share(evidence, shares),
            level="warning" if is_whole and ended is not None else None,
        )


def find_time_share(evidence: Evidence, shares: Iterable[Share]) -> float | None:
    """Return the part of the program's time in which its backwards serve some gradients alone; None if not measured."""
    tensors: dict[int, set[int]] = defaultdict(set)
    for share in shares:
        if share.backward is not None:
            tensors[share.backward.number].add(share.tensor)
    spent = sum(
        each.seconds
        for number, own in tensors.items()
        for each in evidence.backwards[number].spent
        if each.tensors and each.tensors <= own
    )
    return spent / evidence.trace.seconds if evidence.trace.seconds else None


def _is_lost(evidence: Evidence, share: Share) -> bool:
    if share.uses or share.read or (share.end is not None and share.end.replaced):
        return False  # what replaces it may come from hooks of its backward, as per-sample gradients do
    owned = any(share.tensor in each.tensors for each in evidence.trace.optimizers) or share.tensor in evidence.steppers
    return share.end is not None or not owned


def find_aliased_states(evidence: Evidence) -> Iterator[Finding]:
    """Yield gradients in the state of an optimizer, without a copy, that the next step zeroes or adds to in place."""
    held: dict[int, Update] = {}
    for event in evidence.trace.events:
        match event:
            case Update(aliases=aliases):
                held |= dict.fromkeys(aliases, event)
                continue
            case GradientChange(tensor=tensor, change="none" | "given"):
                held.pop(tensor, None)
                continue
            case GradientChange(tensor=tensor):
                written = (tensor,)
            case Backward(gains=gains):
                written = tuple(gain.tensor for gain in gains if gain.onto)
            case _:
                continue
        lost = [(tensor, update) for tensor in written if (update := held.pop(tensor, None)) is not None]
        for tensor, update in lost:
            yield Finding(
                code="grad-by-reference",
                place=event.place,
                message=f"this writes in place the gradient of {evidence.trace.model(tensor)}, which the state of "
                f"{update.optimizer} holds without a copy",
                others=(Other("kept by the step at", update.place),),
            )


def find_references(evidence: Evidence) -> Iterator[Finding]:
    """Yield gradients that were taken without a copy, and used after another backward had added to them."""
    for position, event in enumerate(evidence.trace.events):
        if not isinstance(event, GradientUse):
            continue
        shares = [
            share
            for share in evidence.ledger.shares
            if share.tensor == event.tensor and share.position < position and share.backward is not None
        ]
        last = shares[-1].backward if shares else None
        lines = {share.backward.place for share in shares[-2:] if share.backward}
        if last is None or (len(lines) < 2 and not event.listed):
            continue  # the same loss once more: an accumulation that is watched
        yield Finding(
            code="grad-by-reference",
            place=last.place,
            message=f"this backward {'overwrites' if event.listed else 'adds to'} the gradient of "
            f"{evidence.trace.tensors[event.tensor].model} in place, which was taken without a copy before and is used "
            "after it",
            others=(Other("taken at", event.taken), Other("used at", event.place)),
        )

"""Clocks of updates: schedules and averages that move when their source does, or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from runtime.audit.findings.finding import Evidence, Finding, Other
from runtime.audit.findings.gradients import find_foreign, find_uses
from runtime.audit.trace import Backward, Mixture, Place, ScalerStep, Stored, Tick, Update, Write


def find_schedules(evidence: Evidence) -> Iterator[Finding]:
    """Yield ticks of a schedule before the update of their step, or without one."""
    applied: dict[str, int] = defaultdict(int)
    skipped: dict[str, Place] = {}
    seen: dict[tuple[str, str], int] = {}
    for event in evidence.trace.events:
        match event:
            case Update(optimizer=name, overflow=False):
                applied[name] += 1
                skipped.pop(name, None)
            case ScalerStep(skipped=True, optimizer=name, place=place):
                skipped[name] = place
            case Tick(schedule=schedule, optimizer=name, place=place):
                before = seen.get((schedule, name))
                seen[schedule, name] = applied[name]
                if applied[name] and before != applied[name]:
                    continue
                if name in skipped:
                    yield Finding(
                        code="schedule-clock",
                        place=place,
                        message=f"{schedule} ticks although the step of {name} was skipped",
                        others=(Other("skipped at", skipped[name]),),
                    )
                elif before is None:
                    yield Finding(
                        code="schedule-order",
                        place=place,
                        message=f"{schedule} ticks before the first step of {name}: the first rate is never used",
                    )
                else:
                    yield Finding(
                        code="schedule-clock",
                        place=place,
                        message=f"{schedule} ticks although {name} has taken no step since its last tick",
                    )
            case _:
                pass


@dataclass(slots=True)
class _Turn:
    """One move of an average: of all tensors of a model towards another's."""

    place: Place
    first: int
    last: int
    pairs: dict[int, int] = field(default_factory=dict[int, int])
    """Tensor -> the tensor that it follows."""


def find_averages(evidence: Evidence) -> dict[tuple[str, str], list[_Turn]]:
    """Return by (average, source) its moves since the first backward; what is copied before that is a beginning."""
    averages: dict[tuple[str, str], list[_Turn]] = {}
    begun = False
    for position, event in enumerate(evidence.trace.events):
        begun = begun or isinstance(event, Backward)
        if not (begun and isinstance(event, Write) and event.by == "code"):
            continue
        target = evidence.trace.tensors[event.tensor]
        for source in (evidence.trace.tensors[each.tensor] for each in event.sources if not each.is_gradient):
            if _split(target.label) == _split(source.label) or target.label == source.label:
                continue
            if target.model == source.model and target.name.split(".")[-1] != source.name.split(".")[-1]:
                continue
            turns = averages.setdefault(_name(target.label, source.label), [])
            if not turns or event.tensor in turns[-1].pairs or position - turns[-1].last > 10_000:
                turns.append(_Turn(event.place, position, position))
            turns[-1].pairs[event.tensor] = source.number
            turns[-1].last = position
    return averages


def find_kept_averages(evidence: Evidence) -> dict[str, list[_Turn]]:
    """Return by source the moves of averages that the program keeps in values of its own.

    Weights that are mixed once into a copy of earlier ones make a difference, or a step back; only what is mixed into
    the result again is an average.
    """
    averages: dict[str, list[_Turn]] = {}
    continued = {event.before for event in evidence.trace.of(Mixture)}
    last = {event.tensor: event.number for event in evidence.trace.of(Mixture) if event.before}
    for position, event in enumerate(evidence.trace.events):
        if not isinstance(event, Mixture):
            continue
        if event.number not in continued and event.number != last.get(event.tensor):
            continue
        turns = averages.setdefault(evidence.trace.model(event.tensor), [])
        if not turns or event.tensor in turns[-1].pairs:
            turns.append(_Turn(event.place, position, position))
        turns[-1].pairs[event.tensor] = event.tensor
        turns[-1].last = position
    return averages


def _split(label: str) -> tuple[str, ...]:
    return tuple(label.split("."))


def _name(target: str, source: str) -> tuple[str, str]:
    """Return what of two labels is not the same at their ends: the average and its source."""
    one, other = target.split("."), source.split(".")
    while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return ".".join(one), ".".join(other)


def find_average_clocks(evidence: Evidence) -> Iterator[Finding]:
    """Yield averages that are taken before the update that they should see, or while their source stands still."""
    shares: dict[int, list[tuple[int, int]]] = defaultdict(list)
    uses, events = find_uses(evidence), evidence.trace.events
    # Contributions of other optimizers' losses that are applied as leftovers: no step waits for them.
    leftovers = {
        found[0]
        for applied in evidence.ledger.updates
        for held in applied.held.values()
        for index in range(len(held))
        if (found := find_foreign(held[index:], applied.event.optimizer, uses)) is not None
    }
    for share in evidence.ledger.shares:
        used = next((use for use in share.uses if not use.skipped), None)
        if used is not None and share not in leftovers:
            shares[share.tensor].append((share.position, used.position))
    writes: dict[int, list[int]] = defaultdict(list)
    stepped = evidence.steppers.keys()
    for position, event in enumerate(events):
        if isinstance(event, Write):
            writes[event.tensor].append(position)
    kept = {(f"an average of {name}", name): turns for name, turns in find_kept_averages(evidence).items()}
    for (target, source), turns in {**find_averages(evidence), **kept}.items():
        for before, turn in zip([None, *turns], turns, strict=False):
            followed = [each for each in turn.pairs.values() if each in stepped]
            waiting = [use for each in followed for at, use in shares[each] if at < turn.first and use > turn.last]
            still = before is not None and not any(
                before.first < at < turn.first for each in followed for at in writes[each]
            )
            if (
                still
                and before is not None
                and followed
                and any(isinstance(each, Backward) for each in events[before.last : turn.first])
            ):
                yield Finding(
                    code="ema-clock",
                    place=turn.place,
                    message=f"{target} moves towards {source} although {source} has not moved since the last time",
                    others=(Other("last moved at", before.place),) if before.place != turn.place else (),
                )
            elif waiting and not still and not _accumulates(evidence, turn.last, min(waiting)):
                yield Finding(
                    code="ema-order",
                    place=turn.place,
                    message=f"{target} moves towards {source} before {source}'s update: it lags by one step",
                    others=(Other("updated at", events[min(waiting)].place),),
                )
            elif waiting and not still:
                yield Finding(
                    code="ema-clock",
                    place=turn.place,
                    message=f"{target} moves towards {source} within the micro-batches of a step",
                )


def _accumulates(evidence: Evidence, first: int, last: int) -> bool:
    """Return whether another backward adds to gradients between two positions."""
    between = evidence.trace.events[first:last]
    return any(isinstance(each, Backward) and any(gain.onto for gain in each.gains) for each in between)


def find_left_out(evidence: Evidence) -> Iterator[Finding]:
    """Yield averages that leave out buffers, or parameters, that move in their source."""
    trace = evidence.trace
    written = {event.tensor for event in trace.of(Write)}
    moved = {event.tensor for event in trace.of(Write) if event.by in ("update", "forward")}
    by_label = {each.label: each for each in trace.tensors}
    for (target, source), turns in find_averages(evidence).items():
        followed = {number for turn in turns for number in turn.pairs.values()}
        left: list[Stored] = []
        for each in trace.tensors:
            if each.label.startswith(f"{source}.") and each.number in moved and each.floating:
                own = by_label.get(target + each.label[len(source) :])
                if own is not None and own.number not in written and each.number not in followed:
                    left.append(own)
        for kind, code in (("buffers", "ema-without-buffers"), ("params", "ema-partial")):
            names = [each.name for each in left if each.kind == kind]
            if names:
                shown = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
                yield Finding(
                    code=code,
                    place=turns[0].place,
                    message=f"{target} follows {source}, but its {shown} stay what they were",
                )


def find_trained_targets(evidence: Evidence) -> Iterator[Finding]:
    """Yield averages that an optimizer steps too."""
    averages = find_averages(evidence)
    owners: dict[int, Update] = {}
    for event in evidence.trace.of(Update):
        for part in event.parts:
            if part.has_gradient:
                owners.setdefault(part.tensor, event)
    for (target, source), turns in averages.items():
        if (source, target) in averages:
            continue  # each follows the other, as slow and fast weights do
        steps = [owners[tensor] for turn in turns for tensor in turn.pairs if tensor in owners]
        trained = any(number in owners for turn in turns for number in turn.pairs.values())
        if steps and trained:
            yield Finding(
                code="target-trained",
                place=steps[0].place,
                message=f"{steps[0].optimizer} steps {target}, which follows {source}",
                others=(Other("follows it at", turns[0].place),),
            )
        elif steps:
            yield Finding(
                code="target-trained",
                place=turns[0].place,
                message=f"{target}, which {steps[0].optimizer} trains, moves towards {source}, which nothing trains",
                others=(Other("trained at", steps[0].place),),
                level="question",
            )


def find_state_per_forward(evidence: Evidence) -> Iterator[Finding]:
    """Yield buffers, other than those of batch norms, that every forward of an accumulated step moves.

    Calls of one model for one backward, as for real and fake data on a line, are no parts of a batch.
    """
    since: dict[int, list[Place]] = defaultdict(list)
    moved: dict[tuple[int, int], None] = {}
    backwards = 0
    for event in evidence.trace.events:
        match event:
            case Backward():
                backwards += 1
            case Write(by="forward", tensor=tensor, place=place, operation=operation, frozen=""):
                is_state = "batch_norm" not in operation and evidence.trace.tensors[tensor].floating
                if is_state and (tensor, backwards) not in moved:
                    moved[tensor, backwards] = None
                    since[tensor].append(place)
            case Update():
                for tensor, places in since.items():
                    if len(places) > 1 and len(set(places)) == 1:
                        yield Finding(
                            code="state-per-forward",
                            place=places[0],
                            message=f"{evidence.trace.tensors[tensor].label} moves with each of {len(places)} "
                            "forwards of one step",
                            others=(Other("updated at", event.place),),
                        )
                since.clear()
            case _:
                pass

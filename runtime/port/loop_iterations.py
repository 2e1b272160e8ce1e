"""The iterations of a recorded loop: one backward of every line, and what follows it until the next iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from runtime.audit.gradients import keep_ledger
from runtime.audit.trace import Backward, Update, Write
from runtime.port.tape import Called, Derived, Ran, Tape, walk_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration: its events are those from `first` up to, not including, `last`."""

    number: int
    first: int
    last: int
    backwards: tuple[Backward, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """An update in an iteration, and the iterations of the backwards whose gradients it applied."""

    update: Update
    position: int
    iteration: int
    gathered: tuple[int, ...]
    backwards: tuple[Backward, ...]
    """Those of its own iteration."""


def find_iterations(tape: Tape) -> tuple[Iteration, ...]:
    """Return the iterations of a loop: in each of them a line runs one backward, and an optimizer takes one step."""
    events, groups = tape.trace.events, list[list[tuple[int, Backward]]]()
    stepped: dict[str, int] = {}
    for position, event in enumerate(events):
        match event:
            case Backward(accumulates=True, inside=0, error=""):
                if not groups or any(event.site == other.site for _, other in groups[-1]):
                    groups.append([])
                    stepped = {}
                groups[-1].append((position, event))
            case Update(optimizer=name) if name in stepped and groups:
                since = stepped[name]
                after = [each for each in groups[-1] if each[0] > since]
                if after:
                    groups[-1] = [each for each in groups[-1] if each[0] < since]
                    groups.append(after)
                    stepped = {other: at for other, at in stepped.items() if at > after[0][0]}
                stepped[name] = position
            case Update(optimizer=name):
                stepped[name] = position
            case _:
                pass
    # What follows the last steps has none of its own: the recording ends within that iteration.
    last = max(stepped.values(), default=-1)
    if rest := [each for each in (groups[-1] if groups else []) if each[0] > last >= 0]:
        groups[-1:] = [[each for each in groups[-1] if each[0] < last], rest]
    ends: list[int] = []
    for group, after in pairwise(groups):  # an iteration ends after the writes that follow its last backward
        end = group[-1][0] + 1
        for position in range(end, _find_start(tape, after[0][1], group[-1][0])):
            event = events[position]
            if isinstance(event, Update) or (isinstance(event, Write) and event.by == "code"):
                end = position + 1
        ends.append(end)
    ends += [len(events)] if groups else []
    starts = [0, *ends]
    return tuple(
        Iteration(number=number, first=first, last=last, backwards=tuple(event for _, event in group))
        for number, (group, first, last) in enumerate(zip(groups, starts, ends, strict=False))
    )


def _find_start(tape: Tape, backward: Backward, last: int) -> int:
    """Return the position of the first call of a model, after another position, that a backward goes through."""
    made = (each for each in tape.entries if isinstance(each, Called | Ran) and each.position > last)
    makers = {number: each for each in made for number in each.outputs}
    root = next((each for each in tape.entries if isinstance(each, Derived) and each.backward == backward.number), None)
    values = walk_back(root.roots if root else (), lambda number: makers[number].given if number in makers else ())
    entries = (makers[number] for number in values if number in makers)
    return min((each.position for each in entries if isinstance(each, Ran)), default=backward.start)


def find_fired(tape: Tape, iterations: Sequence[Iteration]) -> Mapping[str, tuple[Fired, ...]]:
    """Return the updates of every optimizer."""
    homes = {event.number: each.number for each in iterations for event in each.backwards}
    fired: dict[str, list[Fired]] = {}
    for applied in keep_ledger(tape.trace).updates:
        home = next((each for each in iterations if each.first <= applied.position < each.last), None)
        if home is None or applied.event.overflow:
            continue
        backwards = [share.backward for shares in applied.held.values() for share in shares if share.backward]
        found = {event.number: event for event in backwards if event.number in homes}
        fired.setdefault(applied.event.optimizer, []).append(
            Fired(
                update=applied.event,
                position=applied.position,
                iteration=home.number,
                gathered=tuple(sorted({homes[number] for number in found})),
                backwards=tuple(event for number, event in sorted(found.items()) if homes[number] == home.number),
            )
        )
    return {name: tuple(each) for name, each in fired.items()}

"""What ``.grad`` held: every contribution of a backward to the gradient of a tensor, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.audit.trace import (
    Backward,
    Gain,
    GradientChange,
    GradientRead,
    Place,
    ScalerStep,
    Source,
    Trace,
    Unscale,
    Update,
    Write,
)


class Use(NamedTuple):
    """A contribution is applied: by an optimizer, or by a line of the user's that reads the gradient."""

    optimizer: str
    place: Place
    position: int
    skipped: bool = False


class End(NamedTuple):
    """A contribution is removed: the line, the function, and whether another gradient was put in its place."""

    place: Place
    position: int
    function: str
    replaced: bool


@dataclass(slots=True, kw_only=True, eq=False)
class Share:
    """What one backward gave to the gradient of one tensor. It is complete once the ledger is."""

    tensor: int
    backward: Backward | None
    """None: the user's code has put the gradient there."""
    gain: Gain | None
    position: int
    uses: list[Use] = field(default_factory=list[Use])
    unscaled: int | None = None
    """The position at which it was divided by the scale."""
    clips: list[tuple[Place, str]] = field(default_factory=list[tuple[Place, str]])
    """Lines that changed it, with the function."""
    read: bool = False
    """The user's code has taken the gradient while it was in it."""
    end: End | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An update, with what the gradients of its tensors held, and what they had held since its last step."""

    event: Update
    position: int
    held: Mapping[int, tuple[Share, ...]]
    dropped: Mapping[int, tuple[Share, ...]]
    """Contributions that were removed unused since the optimizer last stepped the tensor."""

    @property
    def is_live(self) -> bool:
        """Return whether it finds a gradient that is not all zeros."""
        return any(part.has_gradient and not part.zero for part in self.event.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A change of a gradient, with what it held then."""

    event: GradientChange
    position: int
    held: tuple[Share, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All contributions, updates and changes, in order."""

    shares: tuple[Share, ...]
    updates: tuple[Applied, ...]
    changes: tuple[Changed, ...]


def keep_ledger(trace: Trace) -> Ledger:
    """Return the ledger of a trace."""
    keeper = _Keeper()
    # Steps that move weights between the backwards of their closure.
    closures = [
        range(event.start, at) for at, event in enumerate(trace.events) if isinstance(event, Update) and event.closure
    ]
    for position, event in enumerate(trace.events):
        match event:
            case Backward():
                for gain in event.gains if event.accumulates else ():
                    keeper.gain(event, gain, position)
            case GradientChange():
                keeper.change(event, position)
            case GradientRead(tensor=tensor):
                for share in keeper.held.get(tensor, ()):
                    share.read = True
            case Unscale(tensors=tensors):
                for share in (each for tensor in tensors for each in keeper.held.get(tensor, ())):
                    share.unscaled = position
            case ScalerStep(skipped=True, error="", optimizer=name, place=place, tensors=tensors):
                for share in (each for tensor in tensors for each in keeper.held.get(tensor, ())):
                    share.uses.append(Use(name, place, position, skipped=True))
            case Update():
                keeper.update(event, position)
            case Write(by="update", tensor=tensor, writer=name, place=place) if any(position in it for it in closures):
                for share in keeper.held.get(tensor, ()):
                    share.uses.append(Use(name, place, position))
            case Write(by="code", sources=sources, place=place):
                keeper.use_by_hand(sources, place, position)
            case _:
                pass
    return Ledger(shares=tuple(keeper.shares), updates=tuple(keeper.updates), changes=tuple(keeper.changes))


class _Keeper:
    """The ledger while it is kept."""

    def __init__(self) -> None:
        self.shares: list[Share] = []
        self.updates: list[Applied] = []
        self.changes: list[Changed] = []
        self.held: dict[int, list[Share]] = {}
        self._dropped: dict[int, list[Share]] = {}

    def gain(self, event: Backward, gain: Gain, position: int) -> None:
        """Note what a backward adds."""
        share = Share(tensor=gain.tensor, backward=event, gain=gain, position=position)
        self.shares.append(share)
        if not gain.onto:
            self.held[gain.tensor] = []
        self.held.setdefault(gain.tensor, []).append(share)

    def change(self, event: GradientChange, position: int) -> None:
        """Note that a gradient is removed, replaced or changed."""
        held = self.held.setdefault(event.tensor, [])
        self.changes.append(Changed(event=event, position=position, held=tuple(held)))
        if event.change == "changed":
            for share in held:
                share.clips.append((event.place, event.function))
            return
        if event.change == "given" and Source(event.tensor, True) in event.sources:
            return  # a function of what was there
        for share in held:
            share.end = End(event.place, position, event.function, event.change == "given")
        self._dropped.setdefault(event.tensor, []).extend(each for each in held if not each.uses)
        self.held[event.tensor] = []
        if event.change == "given":
            share = Share(tensor=event.tensor, backward=None, gain=None, position=position)
            self.held[event.tensor].append(share)

    def update(self, event: Update, position: int) -> None:
        """Note that an optimizer applies what there is."""
        numbers = [part.tensor for part in event.parts]
        held = {number: tuple(self.held.get(number, ())) for number in numbers}
        dropped = {number: tuple(self._dropped.pop(number, ())) for number in numbers}
        self.updates.append(Applied(event=event, position=position, held=held, dropped=dropped))
        for share in (share for shares in held.values() for share in shares):
            share.uses.append(Use(event.optimizer, event.place, position, skipped=event.overflow))

    def use_by_hand(self, sources: frozenset[Source], place: Place, position: int) -> None:
        """Note that a line of the user's writes something that gradients are part of."""
        for source in sources:
            for share in self.held.get(source.tensor, ()) if source.is_gradient else ():
                share.uses.append(Use("", place, position))

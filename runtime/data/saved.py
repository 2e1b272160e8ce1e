"""A saved place in the data: how it is written, and whether a source can go on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphspec.diagnostics import SpecError
from runtime.data.batches import Batches
from runtime.data.place import Place
from runtime.data.position import Position
from runtime.data.stateful import Stateful, read_state
from runtime.state import Tree

_COUNTS = ("epoch", "index", "samples", "taken", "batch")
_NAMES: Mapping[str, str] = {"samples": "samples by number", "stream": "batches one after another"}
_HELP = "give the source what it was then, or start a new run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A position, what of the source it is only valid for, and the state of a user's own source."""

    kind: str
    position: Position
    batch: int
    size: int | None
    stateful: bool
    state: Tree

    @classmethod
    def of(cls, batches: Batches, place: Place, position: Position) -> Saved:
        """Return what is to be saved of a feed. Raises SpecError: GS226, GS253 the state of a user's own source."""
        origin, is_stateful = batches.origin, isinstance(batches.origin, Stateful)
        return cls(
            kind=batches.kind,
            position=position,
            batch=place.declared.batch,
            size=batches.size,
            stateful=is_stateful,
            state=read_state(origin, place) if isinstance(origin, Stateful) else None,
        )

    @classmethod
    def read(cls, tree: Tree, place: Place) -> Saved:
        """Return what :meth:`to_tree` gave; raise GS252 for anything else."""
        match tree:
            case {"kind": str(kind), "size": int() | None as size, "stateful": bool(stateful), **rest}:
                epoch, index, samples, taken, batch = (_read_count(rest.get(name), place) for name in _COUNTS)
                at = Position(epoch=epoch, index=index, samples=samples, taken=taken)
                state = rest.get("state")
                return cls(kind=kind, position=at, batch=batch, size=size, stateful=stateful, state=state)
            case _:
                raise _unreadable(place)

    def to_tree(self) -> Tree:
        """Return it as plain data, with the arrays of the source's state."""
        position = self.position
        counts = (position.epoch, position.index, position.samples, position.taken, self.batch)
        written = dict(zip(_COUNTS, counts, strict=True))
        return {"kind": self.kind, "size": self.size, **written, "stateful": self.stateful, "state": self.state}

    def check(self, batches: Batches, place: Place) -> None:
        """Raise GS252 where a source cannot go on from here."""
        if self.kind != batches.kind:
            now, then = (_NAMES.get(kind, kind) for kind in (batches.kind, self.kind))
            raise _unfit(place, f"the source gives {now}, the run was saved with one that gives {then}")
        if batches.size is not None and self.position.samples > batches.size:
            epoch, samples = self.position.epoch + 1, self.position.samples
            raise _unfit(place, f"{samples} samples of epoch {epoch} had been taken, the source has {batches.size}")
        if self.stateful != isinstance(batches.origin, Stateful):
            has, held = ("no", "a") if self.stateful else ("a", "no")
            raise _unfit(place, f"the source has {has} load_state_dict, the run was saved with {held} state of it")

    def compare(self, batches: Batches, place: Place) -> Iterator[str]:
        """Yield what is not as it was when this was saved, or takes time."""
        role, batch, taken = ".".join(place.path), place.declared.batch, self.position.taken
        if batches.size != self.size:
            yield f"{role} has {batches.size} samples, it had {self.size}: other batches follow than would have then"
        if batch != self.batch:
            kept = f"{self.position.samples} samples" if batches.kind == "samples" else f"{self.position.index} batches"
            yield f"{role} has batches of {batch}, it had {self.batch}: the epoch goes on behind its first {kept}"
        if batches.kind == "stream" and not self.stateful and taken:
            yield f"{role} keeps no state: {taken} batches are read again to come to its place"


def _read_count(value: Tree, place: Place) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _unreadable(place)


def _unfit(place: Place, message: str) -> SpecError:
    return place.problem("GS252", message, help=_HELP)


def _unreadable(place: Place) -> SpecError:
    return place.problem("GS252", "the checkpoint holds no position in the data", help="resume from another one")

"""Which ops their clocks admit in a step: steps counted from 1, writes of a source counted one by one."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CopyOp, EmaOp, Op, UpdateOp
from graphspec.declare.parts import Part
from tests.oracle.backs import WriteBack, back_of
from tests.oracle.meaning import WRITERS, Meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many steps an epoch has, and how many samples a step."""

    epoch: int = 2
    rows: int = 3


class Clocks:
    """The steps and counts of every mode."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.steps: dict[str, int] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.written: dict[tuple[str, str], int] = {}
        """By mode and update, average or copy: the steps in which an update was applied, or the source was written."""
        self.averaged: set[str] = set()
        """Averages that have fired."""
        self.taken: dict[str, int] = {}
        """By average: how often it took place since it began."""
        self.gathering: set[str] = set()
        """Updates that accumulate and take part in this step, unless what they go by is held."""
        self.open: dict[str, int] = {}
        """How many steps their windows had before this one, or none of an epoch that this one ends."""
        self.admitted: set[str] = set()
        """The ops that may fire in this step."""
        self.counted: list[str] = []
        """Averages and copies whose source some op may write in this step."""

    def admit(self, meaning: Meaning) -> set[str]:
        """Count a step of a mode, and return the ops that may fire in it."""
        self.steps[meaning.mode] = step = self.steps.get(meaning.mode, 0) + 1
        self.admitted = admitted = set[str]()
        self.gathering, self.counted = set(), []
        for name in meaning.gated:
            is_inside = meaning.takes(name) and self._is_inside(name, meaning, step, admitted)
            is_inside = is_inside and all(is_open(part, meaning, step) for part in meaning.ops[name].within)
            if is_inside and self._is_due(name, meaning, step, admitted):
                admitted |= {name} if self._is_full(name, meaning) else set()
            if step % self.pace.epoch == 0 and name in meaning.accumulating:
                admitted |= {name} if self._close(name, meaning) else set()
        return admitted

    def _close(self, name: str, meaning: Meaning) -> bool:
        """Return whether the end of an epoch applies an open window; none is open then but one that goes on."""
        word, key = meaning.ops[name].accumulate.on_epoch_end, (meaning.mode, f"window of {name}")
        is_open = self.counts.get(key, 0) % meaning.ops[name].window > 0
        if word != "carry":
            self.counts[key] = self.open[name] = 0
        return word == "flush" and is_open

    def _is_full(self, name: str, meaning: Meaning) -> bool:
        """Return whether an op that is due runs: an update that accumulates does so at the end of a window."""
        op = meaning.ops[name]
        if not isinstance(op, UpdateOp) or op.window == 1:
            return True
        self.gathering.add(name)
        key = (meaning.mode, f"window of {name}")
        self.open[name] = self.counts.get(key, 0)
        self.counts[key] = self.open[name] + 1
        return self.counts[key] % op.window == 0

    def _is_due(self, name: str, meaning: Meaning, step: int, admitted: set[str]) -> bool:
        op = meaning.ops[name]
        if isinstance(op.every, str) and op.every not in admitted:
            return False
        every = op.every if isinstance(op.every, int) else 1
        is_partial = meaning.is_partial(name) or any(part.is_gated for part in op.within)
        if not isinstance(op, EmaOp | CopyOp) and every > 1 and is_partial:
            return self._count(name, meaning, op) % every == 0
        if not isinstance(op, EmaOp | CopyOp):
            return (step - (self._first(op) or every)) % every == 0
        if not self._find_writers(name, meaning, admitted):
            return False
        is_due = self._count(name, meaning, op) % every == 0
        return is_due and (not isinstance(op, WriteBack) or op.average in admitted)

    def _count(self, name: str, meaning: Meaning, op: Op) -> int:
        """Count a step for an op; with a start the first that counts is the 0th."""
        key = (meaning.mode, written_name(name, op) if isinstance(op, EmaOp | CopyOp) else name)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.counted += [name] if isinstance(op, EmaOp | CopyOp) else []
        return self.counts[key] - (1 if op.opens else 0)

    def _find_writers(self, name: str, meaning: Meaning, admitted: set[str]) -> list[str]:
        """Return the ops that write the source of an average or copy before it: in an iteration those of that alone."""
        op = meaning.ops[name]
        if isinstance(op, WriteBack):
            return self._find_writers(op.average, meaning, admitted)
        cells = {*meaning.storages.cells(op.ema if isinstance(op, EmaOp) else op.copy_)}
        writers = meaning.find_followed(name, cells)
        return [other for other in writers if other in admitted and isinstance(meaning.ops[other], WRITERS)]

    def note(self, meaning: Meaning, firing: list[str], held: set[str]) -> None:
        """Remember which averages there are, and forget the writes that did not take place."""
        fired = {name: meaning.ops[name] for name in firing if name not in held}
        averages = {name: op for name, op in fired.items() if isinstance(op, EmaOp)}
        self.averaged |= averages.keys()
        for name, op in averages.items():
            self.taken[written_name(name, op)] = self.number(name, op, meaning.mode)
        for name in self.gathering:
            key = (meaning.mode, f"window of {name}")
            if meaning.ops[name].every in held:
                self.counts[key] = self.open[name]
        for name in self.counted:
            writers = self._find_writers(name, meaning, self.admitted)
            if held.issuperset(writers):
                self.counts[meaning.mode, written_name(name, meaning.ops[name])] -= 1
        made = [name for name in firing if name in self.admitted - held and isinstance(meaning.ops[name], WRITERS)]
        for name, op in meaning.ops.items():
            if isinstance(op, UpdateOp):
                took_place = name in made
            elif isinstance(op, EmaOp | CopyOp):  # it counts on data sets that it does not run on, too
                source = op.into if isinstance(op, WriteBack) else op.ema if isinstance(op, EmaOp) else op.copy_
                cells = meaning.storages.cells(source)
                others = (other for other in made if other not in (name, back_of(name)))
                took_place = any(meaning.writes(other).intersection(cells) for other in others)
            else:
                continue
            self.written[meaning.mode, name] = self.written.get((meaning.mode, name), 0) + took_place

    def number(self, name: str, op: EmaOp, mode: str, earlier: int = 0) -> int:
        """Return which firing of an average since its beginning one of this step is; 0 while it is a copy.

        ``earlier``: how often it fires before in this step, in other iterations.
        """
        is_early = op.copies_before and self.steps[mode] < first_step(op.start, self.pace)
        return 0 if is_early else self.taken.get(written_name(name, op), 0) + 1 + earlier

    def is_frozen(self, spec: GraphSpec, model: str, until: Duration, step: int) -> bool:
        """Return whether a group of a model is frozen in a train step, before which so much was applied."""
        if until.unit != "updates":
            return step <= last_step(until, self.pace)
        updates = [name for name, op in spec.ops.items() if isinstance(op, UpdateOp) and model in op.update]
        return sum(self.written.get(("train", name), 0) for name in updates) < until.count

    def _first(self, op: Op) -> int:
        """Return the first step that ``start`` admits; 0 where it is not written."""
        return first_step(op.opens, self.pace) if op.opens is not None and op.opens.unit != "updates" else 0

    def _is_inside(self, name: str, meaning: Meaning, step: int, admitted: set[str]) -> bool:
        """Return whether a step is between start and until, in updates where they are."""
        op, written = meaning.ops[name], self.written.get((meaning.mode, name), 0)
        if op.opens is not None and op.opens.unit == "updates":
            written_now = written + bool(self._find_writers(name, meaning, admitted))
            if written_now < op.opens.count:
                return False
        if op.until is not None and op.until.unit == "updates":
            return self._first(op) <= step and written < op.until.count
        return self._first(op) <= step <= (last_step(op.until, self.pace) if op.until is not None else step)


def is_open(part: Part, meaning: Meaning, step: int) -> bool:
    """Return whether an iteration or alternative runs in a step: by its steps, or by a number that is drawn for it."""
    if part.choose is None:
        return (part.start or 1) <= step <= (step if part.until is None else part.until)
    word = f"{meaning.spec.seed}/{meaning.mode}/{step}/{part.choose}"
    number = int(hashlib.blake2b(word.encode(), digest_size=6).hexdigest(), 16) / 16**12
    return part.low <= number < part.high


def written_name(name: str, op: Op) -> str:
    """Return the name of an op as it is written: without the numbers of the iterations that it is in."""
    words, place = name.split("."), 0
    for part in op.within:
        place = len(part.name.split(".")) - 1
        words[place] = "" if part.repeat is not None else words[place]
    return ".".join(word for word in words if word)


def first_step(start: Duration, pace: Pace) -> int:
    """Return the first step, from 1: of an epoch, which begins where the one before ended, or with a certain sample."""
    count = Fraction(str(start.count))
    match start.unit:
        case "epochs":
            return math.floor((count - 1) * pace.epoch) + 1
        case "samples":
            return math.ceil(count / pace.rows)
        case _:
            return int(count)


def last_step(until: Duration, pace: Pace) -> int:
    """Return the last step, from 1: of an epoch, or with a certain sample."""
    return int(until.count) * pace.epoch if until.unit == "epochs" else first_step(until, pace)

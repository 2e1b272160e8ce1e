"""Whether a pattern is found in a name, in a time that is bounded by the lengths of both.

Python's engine tries every way in which a pattern may fit, one after another: `(?:.?){60}!` has 2^60. Patterns that may
fit in few ways are left to it. Of the others every pair of a place in the pattern and a place in the name is visited
once (Thompson 1968, with memory). Python's own parser reads them, so the language is Python's; only what cannot be
matched so is refused: references to groups, conditions on them, atomic groups and possessive repeats.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import cast

from msgspec import Struct

LONGEST_PATTERN = 1_000
"""Characters of a pattern."""
MOST_PLACES = 5_000
"""Places of a pattern, its repeats written out."""
FEW_WAYS = 4_096
"""As many ways are tried one after another, of a name that is not long."""
LONGEST_NAME = 64
"""Characters of a name that is not long."""

Node = tuple[object, object]
"""A part of a pattern as Python's parser gives it: what it is, and what belongs to it."""
Nodes = Iterable[Node]
_ONE = frozenset({"LITERAL", "NOT_LITERAL", "IN", "ANY"})


class UnmatchableError(ValueError):
    """A pattern is too large, or has a part that cannot be matched in a bounded time."""


def is_found(pattern: str, name: str) -> bool:
    """Return whether a pattern is found in a name, as ``re.search`` says; raise UnmatchableError, or ``re.error``."""
    return read_pattern(pattern).is_found(name)


class Pattern(Struct):
    """A pattern as Python reads it and, where it may fit in many ways, as places that lead on to others."""

    source: re.Pattern[str]
    places: list[_Place] = []
    """Empty where all names are left to Python's engine."""
    start: int = 0
    has_few_ways: bool = True

    def is_found(self, name: str) -> bool:
        """Return whether the pattern is found in a name."""
        if self.has_few_ways and len(name) <= LONGEST_NAME:
            return self.source.search(name) is not None
        return _Visit(self.places, name).leads_on([(self.start, index) for index in range(len(name) + 1)])


class _Place(Struct, frozen=True):
    """A place of a pattern: what must hold here, and the places after it.

    ``kind``: ``take`` a character that fits, ``stand`` where a mark such as ``^`` fits, ``look`` for what begins at
    ``inner`` (``back`` characters before; not, where ``is_not``), ``pass`` on, or the ``end``.
    """

    kind: str
    after: tuple[int, ...] = ()
    test: re.Pattern[str] | None = None
    inner: int = 0
    back: int = 0
    is_not: bool = False


class _Visit(Struct):
    """A walk over the pairs of a place in a pattern and a place in a name."""

    places: Sequence[_Place]
    name: str
    seen: set[tuple[int, int]] = set()
    looked: dict[tuple[int, int], bool] = {}

    def leads_on(self, pending: list[tuple[int, int]]) -> bool:
        """Return whether some pair leads to the end of the pattern."""
        while pending:
            pair = pending.pop()
            if pair in self.seen:
                continue
            self.seen.add(pair)
            number, index = pair
            place = self.places[number]
            match place.kind:
                case "end":
                    return True
                case "take" | "stand":
                    is_inside = place.kind == "stand" or index < len(self.name)
                    holds = is_inside and place.test is not None and bool(place.test.match(self.name, index))
                case "look":
                    if pair not in self.looked:
                        begin = index - place.back
                        inner = _Visit(self.places, self.name, looked=self.looked)
                        found = begin >= 0 and inner.leads_on([(place.inner, begin)])
                        self.looked[pair] = found != place.is_not
                    holds = self.looked[pair]
                case _:
                    holds = True
            if holds:
                ahead = index + (place.kind == "take")
                pending.extend((after, ahead) for after in place.after)
        return False


@functools.lru_cache(maxsize=1_000)
def read_pattern(pattern: str) -> Pattern:
    """Return a pattern; raise ``re.error`` where it is none of Python's, UnmatchableError where it is not taken."""
    if len(pattern) > LONGEST_PATTERN:
        raise UnmatchableError(f"it has more than {LONGEST_PATTERN:,} characters")
    try:
        source = re.compile(pattern)
        parsed = import_module("re._parser").parse(pattern)
        builder = _Builder()
        start = builder.build(cast("Nodes", parsed), builder.add(_Place("end")), source.flags)
        return Pattern(source, builder.places, start, _count_ways(cast("Nodes", parsed)) <= FEW_WAYS)
    except RecursionError as error:
        raise UnmatchableError("its groups are nested too deep") from error


class _Builder(Struct):
    """The places of a pattern, built from its end to its beginning."""

    places: list[_Place] = []

    def add(self, place: _Place) -> int:
        """Add a place and return its number."""
        if len(self.places) == MOST_PLACES:
            raise UnmatchableError(f"with its repeats written out it has more than {MOST_PLACES:,} places")
        self.places.append(place)
        return len(self.places) - 1

    def build(self, nodes: Nodes, after: int, flags: int) -> int:
        """Add the places of a sequence and return the first of them; ``after`` is what follows it."""
        for each, content in reversed(list(nodes)):
            kind = str(each)
            match kind, _parts(content):
                case (("LITERAL" | "NOT_LITERAL" | "IN" | "ANY"), _):
                    after = self.add(_Place("take", (after,), re.compile(_spell(kind, content), flags)))
                case "AT", _:
                    after = self.add(_Place("stand", (after,), re.compile(_MARKS[str(content)], flags)))
                case "BRANCH", (_, ways):
                    starts = [self.build(way, after, flags) for way in cast("list[Nodes]", ways)]
                    after = self.add(_Place("pass", tuple(starts)))
                case "SUBPATTERN", (_, more, fewer, inner):
                    own = (flags | cast("int", more)) & ~cast("int", fewer)
                    after = self.build(cast("Nodes", inner), after, own)
                case (("MAX_REPEAT" | "MIN_REPEAT"), (least, most, inner)):
                    after = self._repeat(cast("int", least), cast("int", most), cast("Nodes", inner), after, flags)
                case (("ASSERT" | "ASSERT_NOT"), (direction, inner)):
                    begun = self.build(cast("Nodes", inner), self.add(_Place("end")), flags)
                    back = _width(cast("Nodes", inner)) if direction == -1 else 0
                    after = self.add(_Place("look", (after,), None, begun, back, kind == "ASSERT_NOT"))
                case _:
                    what = _NAMES.get(kind, "a part")
                    raise UnmatchableError(f"it has {what} that cannot be matched in a bounded time")
        return after

    def _repeat(self, least: int, most: int, inner: Nodes, after: int, flags: int) -> int:
        nodes = list(inner)
        if most > MOST_PLACES:
            loop = self.add(_Place("pass"))
            self.places[loop] = _Place("pass", (self.build(nodes, loop, flags), after))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self.add(_Place("pass", (self.build(nodes, after, flags), end)))
        for _ in range(least):
            after = self.build(nodes, after, flags)
        return after


_MARKS = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_END": "$",
    "AT_END_STRING": r"\Z",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_NAMES = {
    "GROUPREF": "a reference to a group",
    "GROUPREF_EXISTS": "a condition on a group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}


def _parts(content: object) -> tuple[object, ...]:
    """Return what belongs to a part of a pattern, where that is several things."""
    return cast("tuple[object, ...]", content) if isinstance(content, tuple) else ()


def _spell(kind: str, content: object) -> str:
    """Return the pattern of one character."""
    match kind, content:
        case "ANY", _:
            return "."
        case "LITERAL", int():
            return re.escape(chr(content))
        case "NOT_LITERAL", int():
            return f"[^{re.escape(chr(content))}]"
        case _:
            pass
    members: list[str] = []
    for each, what in cast("Nodes", content):
        match str(each), _parts(what):
            case "NEGATE", _:
                members.append("^")
            case "RANGE", (int(first), int(last)):
                members.append(f"{re.escape(chr(first))}-{re.escape(chr(last))}")
            case "CATEGORY", _:
                members.append(_CATEGORIES[str(what)])
            case _:
                members.append(re.escape(chr(cast("int", what))))
    return f"[{''.join(members)}]"


def _width(nodes: Nodes) -> int:
    """Return how many characters a sequence of fixed width takes, as in a lookbehind."""
    total = 0
    for kind, content in nodes:
        match str(kind), _parts(content):
            case (("LITERAL" | "NOT_LITERAL" | "IN" | "ANY"), _):
                total += 1
            case "BRANCH", (_, ways):
                total += _width(cast("list[Nodes]", ways)[0])
            case "SUBPATTERN", (*_, inner):
                total += _width(cast("Nodes", inner))
            case (("MAX_REPEAT" | "MIN_REPEAT"), (least, _, inner)):
                total += cast("int", least) * _width(cast("Nodes", inner))
            case _:
                pass
    return total


def _count_ways(nodes: Nodes) -> float:
    """Return in how many ways a sequence may fit from one place on, at most, in a name that is not long."""
    ways = 1.0
    for kind, content in nodes:
        match str(kind), _parts(content):
            case (("LITERAL" | "NOT_LITERAL" | "IN" | "ANY" | "AT"), _):
                pass
            case "BRANCH", (_, each):
                ways *= sum(_count_ways(way) for way in cast("list[Nodes]", each))
            case "SUBPATTERN", (*_, inner):
                ways *= _count_ways(cast("Nodes", inner))
            case (("ASSERT" | "ASSERT_NOT"), (_, inner)):
                ways *= 1 + _count_ways(cast("Nodes", inner))
            case (("MAX_REPEAT" | "MIN_REPEAT"), (least, most, inner)):
                repeated, most = cast("Nodes", inner), min(cast("int", most), LONGEST_NAME)
                each = _count_ways(repeated)
                # One character, repeated, fits once for each number of times.
                is_single = each == 1 and [str(kind) in _ONE for kind, _ in repeated] == [True]
                if is_single and most >= cast("int", least):
                    ways *= most - cast("int", least) + 1
                else:
                    ways *= sum(each**times for times in range(most + 1)) if most <= 1 else float("inf")
            case _:
                return float("inf")
    return ways

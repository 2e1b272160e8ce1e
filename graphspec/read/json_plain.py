"""JSON that is plainly right: the data by Python's decoder in C, and the places of keys and values when they are asked.

Whatever needs to be explained is left to the readers that go token by token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import NoReturn

from graphspec.limits import Limits
from graphspec.read.builder import NO_KEY, Path, Plain, Reading, Region
from graphspec.read.scalars import OutOfRangeError, number

_SPACE = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_UNLIKE_YAML = re.compile('[\\\\\t\x85\u2028\u2029\ufeff]|"[\r\n ]+:')
"""Escapes, tabs and line breaks that YAML reads in another way, or not at all, and keys apart from their colons."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_LONGEST_KEY = 1_000
"""YAML reads no longer keys."""


class _UnclearError(ValueError):
    """A text needs a closer look."""


def read_plain(content: str, limits: Limits, *, as_yaml: bool = False) -> Reading | None:
    """Return what a JSON text with a mapping holds; None where a closer look is needed, as for every mistake in it.

    ``as_yaml``: only if a reader of YAML finds the same.
    """
    start = _end_of(_SPACE, content, 0)
    most = content.count(",") + content.count(":") + 2 * content.count("{") + 2 * content.count("[") + 1
    unlike = (_UNLIKE_YAML if as_yaml else _HALF_PAIR).search(content)
    if content[start : start + 1] != "{" or most > limits.nodes or unlike is not None:
        return None
    try:
        data: Plain
        data, end = _DECODER.raw_decode(content, start)
    except (_UnclearError, OutOfRangeError, JSONDecodeError, RecursionError):
        return None
    if not data or _end_of(_SPACE, content, end) < len(content) or _find_depth(data) > limits.depth:
        return None
    return Reading(data=data, regions=_Regions(content, (*NO_KEY, start, end)))


def _make(pairs: list[tuple[str, Plain]]) -> dict[str, Plain]:
    """Return a mapping, each of whose keys is given once."""
    made = dict(pairs)
    if len(made) < len(pairs) or any(len(key) > _LONGEST_KEY for key in made):
        raise _UnclearError
    return made


def _refuse(constant: str) -> NoReturn:
    """Refuse what is no number of JSON."""
    raise _UnclearError(constant)


_DECODER = JSONDecoder(object_pairs_hook=_make, parse_int=number, parse_float=number, parse_constant=_refuse)
_SCANNER = JSONDecoder()


def _end_of(pattern: re.Pattern[str], content: str, start: int) -> int:
    """Return where a pattern that fits at an offset ends."""
    found = pattern.match(content, start)
    return start if found is None else found.end()


def _find_depth(data: Plain) -> int:
    """Return how deep collections are nested, a level at a time."""
    level, depth = [data], 0
    while level:
        depth += 1
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [item for items in inside for item in items if isinstance(item, dict | list)]
    return depth


class _Regions(Mapping[Path, Region]):
    """Where the keys and values of a right text stand; of a collection all are found when one is asked for."""

    def __init__(self, content: str, whole: Region) -> None:
        self._content = content
        self._found: dict[Path, Region] = {(): whole}
        self._children: dict[Path, tuple[Path, ...]] = {}

    def __getitem__(self, path: Path) -> Region:
        for length in range(len(path)):
            if path not in self._found and path[:length] in self._found:
                self._list(path[:length])
        return self._found[path]

    def __contains__(self, path: object) -> bool:
        try:
            return isinstance(path, tuple) and bool(self[path])
        except KeyError:
            return False

    def __iter__(self) -> Iterator[Path]:
        pending: list[Path] = [()]
        while pending:
            path = pending.pop()
            yield path
            pending.extend(reversed(self._list(path)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _list(self, path: Path) -> tuple[Path, ...]:
        """Return the paths of all that is in a collection, with their regions found."""
        known = self._children.get(path)
        if known is not None:
            return known
        content = self._content
        _, _, start, end = self._found[path]
        is_mapping, names = content[start] == "{", list[Path]()
        place = _end_of(_SPACE, content, start + 1) if content[start] in "{[" else end
        while place < end - 1:
            key: str | int = len(names)
            region: tuple[int, int] = NO_KEY
            if is_mapping:
                key, after = _SCANNER.raw_decode(content, place)
                region, place = (place, after), _end_of(_COLON, content, after)
            _, after = _SCANNER.raw_decode(content, place)
            names.append((*path, key))
            self._found[names[-1]] = (*region, place, after)
            place = _end_of(_SPACE, content, _end_of(_SPACE, content, after) + 1)
        self._children[path] = tuple(names)
        return self._children[path]

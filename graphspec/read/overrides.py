"""Overrides: ``-s vars.lr=1e-3`` puts a value into a document before anything else reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.limits import Limits
from graphspec.read.builder import Path, Plain, Reading, SourceText
from graphspec.read.scalars import OutOfRangeError, resolve
from graphspec.read.source import Document, Place, Places, decode
from graphspec.read.yaml_reader import read_yaml
from graphspec.words import closest, describe, quote, spell_path

_DEFAULT_LIMITS = Limits()
_READ_AS_YAML = ("[", "{", '"', "'")
_VARIABLES = "vars"
_INDEX = re.compile(r"[0-9]{1,9}")


def override(document: Document, assignments: Sequence[str], *, limits: Limits = _DEFAULT_LIMITS) -> Document:
    """Return a document with assignments such as ``models.generator.args.latent=64`` carried out, one after another.

    A value is typed like a plain scalar of YAML 1.2; one that begins with a bracket or a quote is read as YAML. A place
    in a value that an assignment put there is in a file named after it, ``-s vars.lr=1e-3``. Raises SpecError with
    every assignment that is wrong.
    """
    problems: list[Diagnostic] = []
    texts: dict[str, str] = {}
    for assignment in assignments:
        file = f"-s {assignment}"
        texts[file] = assignment
        try:
            document = _assign(document, decode(assignment, file, limits), limits)
        except SpecError as error:
            problems.extend(error.diagnostics)
    if problems:
        raise SpecError(problems, {**document.texts, **texts})
    return document


class _PatchedPlaces(Mapping[Path, Place]):
    """Places of a document in which the value of one path is replaced."""

    def __init__(self, base: Mapping[Path, Place], prefix: Path, patch: Mapping[Path, Place], key: Place) -> None:
        self._base = base
        self._prefix = prefix
        self._patch = patch
        self._key = key

    def __getitem__(self, path: Path) -> Place:
        if path[: len(self._prefix)] != self._prefix:
            return self._base[path]
        below = path[len(self._prefix) :]
        return self._patch[below] if below else replace(self._patch[()], key=self._key.key)

    def __iter__(self) -> Iterator[Path]:
        yield from (path for path in self._base if path[: len(self._prefix)] != self._prefix)
        yield from ((*self._prefix, *path) for path in self._patch)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """An assignment taken apart: the parts of its path with their offsets, and where its value begins."""

    text: SourceText
    parts: tuple[str, ...]
    value_start: int

    @property
    def value(self) -> str:
        """Return the text of the value."""
        return self.text.content[self.value_start :].strip()

    def region(self, index: int) -> tuple[int, int]:
        """Return the offsets of a part of the path."""
        ends = tuple(accumulate(len(part) + 1 for part in self.parts))
        return ends[index] - len(self.parts[index]) - 1, ends[index] - 1

    def error(self, code: str, message: str, region: tuple[int, int], *, label: str = "", help: str = "") -> SpecError:
        """Return the error for a part of the assignment."""
        diagnostic = Diagnostic(code=code, message=message, span=self.text.span(*region), label=label, help=help)
        return SpecError([diagnostic], self.text.texts)


def _assign(document: Document, text: SourceText, limits: Limits) -> Document:
    """Carry out one assignment."""
    assignment = _take_apart(text)
    path = _find_path(document.data, assignment)
    reading = _read_value(assignment, replace(limits, depth=limits.depth - len(path)))
    old = document.places.get(path)
    key = Place(key=text.span(*assignment.region(-1)), value=text.span(0, 0)) if old is None else old
    return replace(
        document,
        data=_put(document.data, path, reading.data),
        places=_PatchedPlaces(document.places, path, Places(text, reading.regions), key),
        assignments={**document.assignments, text.file: text.content},
    )


def _take_apart(text: SourceText) -> _Assignment:
    written, equals, _ = text.content.partition("=")
    assignment = _Assignment(text=text, parts=tuple(written.split(".")), value_start=len(written) + 1)
    if not equals or any(not part or part != part.strip() for part in assignment.parts):
        help = "write the path of a key, `=` and a value, as in `vars.lr=1e-3` or `outputs.0=d_loss`"
        raise assignment.error("GS036", "expected an assignment", (0, len(text.content)), help=help)
    return assignment


def _find_path(data: Plain, assignment: _Assignment) -> Path:
    """Return the path that an assignment names; every step of it must exist, but a new key may be its last."""
    path: Path = ()
    value = data
    for index, part in enumerate(assignment.parts):
        is_last = index == len(assignment.parts) - 1
        match value:
            case dict() if part in value:
                path, value = (*path, part), value[part]
            case dict() if is_last and path[:1] != (_VARIABLES,):
                path = (*path, part)
            case dict():
                raise _unknown_key(assignment, index, path, value)
            case list() if _INDEX.fullmatch(part) and int(part) < len(value):
                path, value = (*path, int(part)), value[int(part)]
            case _:
                raise _no_way(assignment, index, path, value)
    return path


def _unknown_key(assignment: _Assignment, index: int, path: Path, value: dict[str, Plain]) -> SpecError:
    part = assignment.parts[index]
    near = closest(part, value, 1)
    message = f"there is no {quote(part)} in {spell_path(path)}"
    keys = ", ".join(value) if 0 < len(value) <= 20 else ""
    help = f"{spell_path(path)} has {keys}" if keys else "an assignment changes what the document has"
    label = f"did you mean '{near[0]}'?" if near else ""
    return assignment.error("GS037", message, assignment.region(index), label=label, help=help)


def _no_way(assignment: _Assignment, index: int, path: Path, value: Plain) -> SpecError:
    """Return the error for a part of a path that leads into a single value, or past the end of a list."""
    part, where = assignment.parts[index], spell_path(path)
    if isinstance(value, list):
        message = f"{where} is a list of {len(value)} and has no item {quote(part)}"
        help = f"items are counted from 0 to {len(value) - 1}" if value else "the list is empty: assign a list to it"
    else:
        message = f"{where} is {describe(value)} and has no {quote(part)} in it"
        help = f"assign a mapping, as in `{where}={{{part}: ...}}`"
    return assignment.error("GS038", message, assignment.region(index), help=help)


def _read_value(assignment: _Assignment, limits: Limits) -> Reading:
    """Return the value of an assignment, with regions in the assignment's text."""
    written = assignment.value
    content = assignment.text.content
    start = len(content) - len(content[assignment.value_start :].lstrip())
    if written.startswith(_READ_AS_YAML):
        return _read_yaml(assignment, start, limits)
    region = (start, start + len(written))
    try:
        return Reading(data=resolve(written), regions={(): (-1, -1, *region)})
    except OutOfRangeError:
        help = "whole numbers have up to 64 bits, others are below 1.8e308; quote it if it is a text"
        raise assignment.error("GS019", "this number is too large to hold", region, help=help) from None


def _read_yaml(assignment: _Assignment, start: int, limits: Limits) -> Reading:
    """Read the value as YAML, with spaces for the path before it: so all offsets are those of the assignment."""
    padded = SourceText(file=assignment.text.file, content=" " * start + assignment.text.content[start:])
    try:
        return read_yaml(padded, limits)
    except SpecError as error:
        raise SpecError(error.diagnostics, assignment.text.texts) from None


def _put(data: Plain, path: Path, value: Plain) -> Plain:
    """Return data with another value at a path; what is not on the path is shared."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    match data:
        case dict():
            key = str(first)
            return {**data, key: _put(data.get(key), rest, value)}
        case list():
            return [_put(item, rest, value) if index == first else item for index, item in enumerate(data)]
        case _:
            return data

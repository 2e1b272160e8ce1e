"""Overrides: ``-s vars.lr=1e-3`` puts a value into a document before anything else reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.limits import Limits
from graphspec.read.builder import Path, Plain, Reading, SourceText
from graphspec.read.scalars import OutOfRangeError, resolve
from graphspec.read.source import Document, Place, Places, decode
from graphspec.read.yaml_reader import read_yaml
from graphspec.words import describe, did_you_mean, quote, spell_path

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
            document = _Assignment(decode(assignment, file, limits)).carry_out(document, limits)
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


class _Assignment:
    """An assignment: its text, the parts of its path, and where its value begins."""

    def __init__(self, text: SourceText) -> None:
        written, equals, _ = text.content.partition("=")
        self._text = text
        self._parts = tuple(written.split("."))
        self._value_start = len(written) + 1
        if not equals or any(not part or part != part.strip() for part in self._parts):
            help = "write the path of a key, `=` and a value, as in `vars.lr=1e-3` or `outputs.0=d_loss`"
            raise self._error("GS036", "expected an assignment", (0, len(text.content)), help=help)

    def carry_out(self, document: Document, limits: Limits) -> Document:
        """Return the document with the value at its path."""
        path = self._find_path(document.data)
        text, old = self._text, document.places.get(path)
        start = len(text.content) - len(text.content[self._value_start :].lstrip())
        written = text.content[start:].strip()
        if written.startswith(_READ_AS_YAML):
            # With spaces for the path before it all offsets are those of the assignment.
            padded = SourceText(file=text.file, content=" " * start + text.content[start:])
            try:
                reading = read_yaml(padded, replace(limits, depth=limits.depth - len(path)))
            except SpecError as error:
                raise SpecError(error.diagnostics, text.texts) from None
        else:
            region = (start, start + len(written))
            try:
                reading = Reading(data=resolve(written), regions={(): (-1, -1, *region)})
            except OutOfRangeError:
                help = "whole numbers have up to 64 bits, others are below 1.8e308; quote it if it is a text"
                raise self._error("GS019", "this number is too large to hold", region, help=help) from None
        key = Place(key=text.span(*self._region(-1)), value=text.span(0, 0)) if old is None else old
        return replace(
            document,
            data=_put(document.data, path, reading.data),
            places=_PatchedPlaces(document.places, path, Places(text, reading.regions), key),
            assignments={**document.assignments, text.file: text.content},
        )

    def _region(self, index: int) -> tuple[int, int]:
        """Return the offsets of a part of the path."""
        ends = tuple(accumulate(len(part) + 1 for part in self._parts))
        return ends[index] - len(self._parts[index]) - 1, ends[index] - 1

    def _error(self, code: str, message: str, region: tuple[int, int], *, label: str = "", help: str = "") -> SpecError:
        diagnostic = Diagnostic(code=code, message=message, span=self._text.span(*region), label=label, help=help)
        return SpecError([diagnostic], self._text.texts)

    def _find_path(self, data: Plain) -> Path:
        """Return the path that is named; every step of it must exist, but a new key may be its last."""
        path: Path = ()
        value = data
        for index, part in enumerate(self._parts):
            is_last = index == len(self._parts) - 1
            where = spell_path(path)
            match value:
                case dict() if part in value:
                    path, value = (*path, part), value[part]
                case dict() if is_last and path[:1] != (_VARIABLES,):
                    path = (*path, part)
                case dict():
                    message, label = f"there is no {quote(part)} in {where}", did_you_mean(part, value)
                    is_short = 0 < len(value) <= 20
                    help = (
                        f"{where} has {', '.join(value)}" if is_short else "an assignment changes what the document has"
                    )
                    raise self._error("GS037", message, self._region(index), label=label, help=help)
                case list() if _INDEX.fullmatch(part) and int(part) < len(value):
                    path, value = (*path, int(part)), value[int(part)]
                case list():
                    message = f"{where} is a list of {len(value)} and has no item {quote(part)}"
                    help = f"items are counted from 0 to {len(value) - 1}"
                    help = help if value else "the list is empty: assign a list to it"
                    raise self._error("GS038", message, self._region(index), help=help)
                case _:
                    message = f"{where} is {describe(value)} and has no {quote(part)} in it"
                    help = f"assign a mapping, as in `{where}={{{part}: ...}}`"
                    raise self._error("GS038", message, self._region(index), help=help)
        return path


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

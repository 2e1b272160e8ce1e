"""Read JSON strictly, with the place of every key and value.

A text that is plainly right is read at once, by Python's decoder in C, and places are found when they are asked for.
Whatever needs to be explained is read token by token, without recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Literal, NoReturn, TypeAlias

from graphspec.limits import Limits
from graphspec.read.builder import NO_KEY, Builder, Path, Plain, Reading, Region, SourceText
from graphspec.read.scalars import OutOfRangeError, Scalar, number
from graphspec.words import quote

State: TypeAlias = Literal["value", "value or end", "key", "key or end", "comma or end", "finished"]

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-+]?[A-Za-z0-9_.+-]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LITERALS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_OPENINGS: dict[str, str] = {"{": "}", "[": "]"}
_ALMOST = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity", "+Infinity", "nan", "inf", "-inf")
_UNLIKE_YAML = re.compile('[\\\\\t\x85\u2028\u2029\ufeff]|"[\r\n ]+:')
"""Escapes, tabs and line breaks that YAML reads in another way, or not at all, and keys apart from their colons."""
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_LONGEST_KEY = 1_000
"""YAML reads no longer keys."""


def read_json(text: SourceText, limits: Limits) -> Reading:
    """Return the data of a JSON document; raise SpecError with every problem of its text."""
    builder = Builder(text, limits)
    _JsonReader(text, builder).read()
    return builder.finish()


class _JsonReader:
    """Feed a builder with the tokens of a JSON text."""

    def __init__(self, text: SourceText, builder: Builder) -> None:
        self._content = text.content
        self._text = text
        self._builder = builder
        self._position = 0
        self._ends: list[str] = []
        self._state: State = "value"

    def read(self) -> None:
        """Read all tokens of the text: the state says which may come."""
        self._skip_space()
        if self._position == len(self._content):
            return
        while self._position < len(self._content):
            character = self._content[self._position]
            match self._state:
                case "value" | "value or end":
                    self._take_value(character)
                case "key" | "key or end":
                    self._take_key(character)
                case "comma or end":
                    self._take_comma(character)
                case "finished":
                    self._fail("more text follows after the end of the document", help="one file holds one value")
            self._skip_space()
        if self._state != "finished":
            opened = self._builder.innermost
            self._position = len(self._content) if opened is None else opened
            end = self._ends[-1] if self._ends else ""
            self._fail(f"the document ends before the `{end}` that belongs here", help=f"close it with `{end}`")

    def _skip_space(self) -> None:
        found = _SPACE.match(self._content, self._position)
        self._position = self._position if found is None else found.end()

    def _take_value(self, character: str) -> None:
        start = self._position
        if character in _OPENINGS:
            self._builder.open("mapping" if character == "{" else "list", start, start + 1)
            self._ends.append(_OPENINGS[character])
            self._position += 1
            self._state = "key or end" if character == "{" else "value or end"
        elif character == "]" and self._state == "value or end":
            self._close()
        else:
            value = self._string() if character == '"' else self._word()
            self._builder.add(value, start, self._position)
            self._state = "comma or end" if self._ends else "finished"

    def _take_key(self, character: str) -> None:
        if character == "}" and self._state == "key or end":
            self._close()
            return
        if character != '"':
            self._fail_at_token("expected a key between double quotes", help='write `"key": value`')
        start = self._position
        self._builder.add(self._string(), start, self._position)
        self._skip_space()
        if self._content[self._position : self._position + 1] != ":":
            self._fail_at_token("expected a `:` after this key", help='write `"key": value`')
        self._position += 1
        self._state = "value"

    def _take_comma(self, character: str) -> None:
        if character == self._ends[-1]:
            self._close()
            return
        if character != ",":
            self._fail_at_token(f"expected `,` or `{self._ends[-1]}`", help="separate items by commas")
        comma = self._position
        self._position += 1
        self._skip_space()
        if self._content[self._position : self._position + 1] == self._ends[-1]:
            self._position = comma
            self._fail("there is a comma after the last item", help="JSON has no trailing commas: remove it")
        self._state = "key" if self._ends[-1] == "}" else "value"

    def _close(self) -> None:
        self._position += 1
        self._ends.pop()
        self._builder.close(self._position)
        self._state = "comma or end" if self._ends else "finished"

    def _string(self) -> str:
        start = self._position
        try:
            found, self._position = _DECODER.raw_decode(self._content, start)
        except JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                self._fail("a quote is not closed", help="close the string with a double quote")
            self._position = min(error.pos, len(self._content))
            if error.msg.startswith("Invalid control"):
                self._fail("a text goes over the end of its line or has a tab in it", help=r"write `\n` or `\t`")
            self._fail("unknown escape in a text", help=r"write `\\` for a backslash, `\u00e9` for a character")
        value = str(found)
        if _SURROGATE.search(value):
            help = r"write both halves of the pair, as in `\ud83d\ude00`, or the character itself"
            self._builder.report("GS020", "this text has half of a surrogate pair", start, self._position, help=help)
        return value

    def _word(self) -> Scalar:
        """Read a number or one of the three literals."""
        start = self._position
        found = _WORD.match(self._content, start)
        word = "" if found is None else found.group()
        if word not in _LITERALS and not _NUMBER.fullmatch(word):
            message = "expected a value"
            help = "a value is a text, a number, true, false, null, a list or a mapping"
            if word in _NOT_FINITE:
                message = f"JSON has no `{word}`"
                help = "leave the key out, or write the spec as YAML: `.nan`, `.inf`"
            elif word in _ALMOST:
                message, help = f"JSON has no `{word}`", f"write `{_ALMOST[word]}`"
            elif word[:1].isalpha():
                help = "a string needs double quotes"
            elif word:
                message, help = f"{quote(word)} is not a number of JSON", "write numbers as in 0.5, -1 or 2e-4"
            self._fail_at_token(message, help=help)
        self._position += len(word)
        if word in _LITERALS:
            return _LITERALS[word]
        try:
            return number(word)
        except OutOfRangeError:
            help = "whole numbers have up to 64 bits, others are below 1.8e308; quote it if it is a text"
            self._builder.report("GS019", "this number is too large to hold", start, self._position, help=help)
            return 0

    def _fail_at_token(self, message: str, *, help: str) -> NoReturn:
        """Fail where a token should begin; two common reasons for it have words of their own."""
        rest = self._content[self._position : self._position + 2]
        if rest in ("//", "/*") or rest[:1] == "#":
            self._fail("JSON has no comments", help="remove it, or write the spec as YAML, where `#` begins a comment")
        if rest[:1] == "'":
            self._fail("JSON has no single quotes", help="write texts and keys between double quotes")
        self._fail(message, help=help)

    def _fail(self, message: str, *, help: str) -> NoReturn:
        self._builder.fail("GS020", message, self._position, self._position, help=help)


# ---------------------------------------------------------------- texts that are plainly right


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
        data, end = _STRICT.raw_decode(content, start)
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


_STRICT = JSONDecoder(object_pairs_hook=_make, parse_int=number, parse_float=number, parse_constant=_refuse)


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
                key, after = _DECODER.raw_decode(content, place)
                region, place = (place, after), _end_of(_COLON, content, after)
            _, after = _DECODER.raw_decode(content, place)
            names.append((*path, key))
            self._found[names[-1]] = (*region, place, after)
            place = _end_of(_SPACE, content, _end_of(_SPACE, content, after) + 1)
        self._children[path] = tuple(names)
        return self._children[path]

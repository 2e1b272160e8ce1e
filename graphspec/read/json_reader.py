"""Read JSON strictly, with the place of every key and value, without recursion."""

from __future__ import annotations

import re
from json import JSONDecodeError, JSONDecoder
from typing import Literal, NoReturn, TypeAlias

from graphspec.limits import Limits
from graphspec.read.builder import Builder, Reading, SourceText
from graphspec.read.scalars import OutOfRangeError, Scalar, number
from graphspec.words import quote

State: TypeAlias = Literal["value", "value or end", "key", "key or end", "comma or end", "finished"]

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[-+]?[A-Za-z0-9_.+-]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LITERALS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_OPENINGS: dict[str, str] = {"{": "}", "[": "]"}
_ALMOST = {"True": "true", "False": "false", "None": "null", "undefined": "null"}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity", "+Infinity", "nan", "inf", "-inf")


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

"""Words for what documents hold: how messages name values and paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LONGEST = 40


def describe(value: object) -> str:
    """Return what a value is, as in "the string 'abc'" or "a list"."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {quote(value)}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "a value of another kind"


def quote(text: str) -> str:
    """Return a text between quotes, cut where it is long."""
    return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")


def spell_path(path: Sequence[str | int]) -> str:
    """Return a path as overrides spell it: ``models.generator.args``; the empty one is "the document"."""
    return ".".join(map(str, path)) or "the document"


def enumerate_words(words: Sequence[str], *, conjunction: str = "or") -> str:
    """Return words as a sentence lists them: "a, b or c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def enumerate_names(names: Iterable[str], *, last: str = "and") -> str:
    """Return names as `a`, `b` and `c`."""
    *most, final = [f"`{name}`" for name in names] or ["nothing"]
    return f"{', '.join(most)} {last} {final}" if most else final


def count(number: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

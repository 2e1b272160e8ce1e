"""Say in the words of somebody who writes YAML what libyaml found wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(r"![^\s,\[\]{}\"']*")
_INDENT = re.compile(r"[ \t]*")
_UNEXPLAINED = "look for a missing quote, bracket, colon or space near here"

_KNOWN: dict[str, tuple[str, str]] = {
    "mapping values are not allowed in this context": (
        "a `key: value` cannot start here",
        "a text with `: ` in it needs quotes; otherwise check the indentation of this line and the one above",
    ),
    "could not find expected ':'": (
        "expected a `:` after this key",
        "write `key: value`, with a space after the colon",
    ),
    "did not find expected key": (
        "expected a key of the mapping that is open here",
        "all keys of a mapping start in the same column; lists inside it start with `- `",
    ),
    "did not find expected '-' indicator": (
        "expected the next `- ` of the list that is open here",
        "all items of a list start in the same column; keys after it belong further left",
    ),
    "did not find expected ',' or ']'": ("a `[` is not closed, or a comma is missing", "close the list with `]`"),
    "did not find expected ',' or '}'": ("a `{` is not closed, or a comma is missing", "close the mapping with `}`"),
    "did not find expected node content": (
        "expected a value",
        "a bracket or comma stands where a value should; a text that is one needs quotes",
    ),
    "found unexpected end of stream": ("a quote is not closed", "end the text with the quote it began with"),
    "block sequence entries are not allowed in this context": (
        "a `- ` cannot start here",
        "start the list on a line of its own, or write it as [a, b]",
    ),
    "found unknown escape character": (
        "unknown escape in a text between double quotes",
        "write `\\\\` for a backslash, or use single quotes",
    ),
    "found invalid Unicode character escape code": (
        "this escape is no character",
        "surrogates cannot be escaped one by one; write the character itself",
    ),
    "found incompatible YAML document": ("this YAML version is unknown", "remove the directive, or write `%YAML 1.2`"),
    "did not find expected <document start>": (
        "the document has ended, but more text follows",
        "one file holds one spec; check the brackets and indentation of what stands before",
    ),
    "did not find expected alphabetic or numeric character": (
        "`*` or `&` must be followed by a name",
        "a text that begins with `*` or `&` needs quotes",
    ),
}
_UNCLOSED = {"[": "did not find expected ',' or ']'", "{": "did not find expected ',' or '}'"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxProblem:
    """A syntax error: what to call it, the offsets it is at, and where the bracket was opened that is not closed."""

    message: str
    help: str
    start: int
    end: int
    code: str = "GS004"
    opened: int | None = None


def explain_syntax_error(
    content: str, problem: str, *, offset: int, context: int | None, innermost: int | None
) -> SyntaxProblem:
    """Return what to tell about a problem that libyaml found at an offset, while reading what began at ``context``.

    ``innermost`` is where the innermost open collection begins.
    """
    offset = min(offset, len(content))
    bracket = None if innermost is None or content[innermost] not in _UNCLOSED else innermost
    tabs = _find_tabs(content, offset) if bracket is None else None
    if tabs is not None:
        return _explain_tabs(tabs)
    if problem == "found character that cannot start any token":
        return _explain_character(content, offset)
    if context is not None and content[context : context + 1] == "!":
        return explain_tag(content, context, offset)
    start, end = offset, offset
    if problem == "found unexpected end of stream" and context is not None:
        start, end = context, context + 1
    elif bracket is not None and not content[offset:].strip():
        problem, start, end = _UNCLOSED[content[bracket]], bracket, bracket + 1
    elif problem == "could not find expected ':'" and context is not None:
        # The key is at fault, not the line below it, where libyaml noticed.
        start, end = context, context + len(content[context:offset].split("\n")[0].rstrip())
    message, help = _KNOWN.get(problem, (problem, _UNEXPLAINED))
    opened = context if problem in _UNCLOSED.values() and start == offset else None
    return SyntaxProblem(message=message, start=start, end=end, help=help, opened=opened)


def explain_tag(content: str, start: int, end: int) -> SyntaxProblem:
    """Return what to tell about the tag of a node, which stands before its value and may stand behind its anchor."""
    found = _TAG.search(content, start, max(end, start + 1))
    tag = found.group() if found else "!"
    first, last = found.span() if found else (start, end)
    message = f"tag {tag!r} is not part of the language"
    help = f'a tag would change the type of a value; a text that begins with `!` needs quotes: "{tag}"'
    return SyntaxProblem(code="GS006", message=message, help=help, start=first, end=last)


def _find_tabs(content: str, offset: int) -> tuple[int, int] | None:
    """Return the part of an indentation that begins with a tab, in the line of an offset."""
    start = max(content.rfind("\n", 0, offset), content.rfind("\r", 0, offset)) + 1
    indent = _INDENT.match(content, start)
    end = start if indent is None else indent.end()
    tab = content.find("\t", start, end)
    return None if tab < 0 else (tab, end)


def _explain_tabs(tabs: tuple[int, int]) -> SyntaxProblem:
    message, help = "a tab is used for indentation", "indent with spaces; most editors can convert tabs"
    return SyntaxProblem(code="GS003", message=message, help=help, start=tabs[0], end=tabs[1])


def _explain_character(content: str, offset: int) -> SyntaxProblem:
    character = content[offset : offset + 1]
    message = f"a value cannot begin with {character!r}"
    help = f"put the text between quotes: {character!r} is reserved in YAML"
    return SyntaxProblem(message=message, help=help, start=offset, end=offset + 1)

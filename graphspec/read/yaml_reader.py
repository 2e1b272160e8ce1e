"""Read YAML: libyaml's events, our own data. Nothing of YAML that runs code, hides a value or repeats one gets in."""

from __future__ import annotations

import re

from msgspec import Struct
from yaml import (
    AliasEvent,
    CBaseLoader,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    StreamEndEvent,
)
from yaml.error import MarkedYAMLError, YAMLError

from graphspec.limits import Limits
from graphspec.read.builder import Builder, Reading, SourceText
from graphspec.read.scalars import OutOfRangeError, Scalar, resolve
from graphspec.words import closest

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
    "did not find expected ',' or ']'": (
        "a `[` is not closed, or a comma is missing",
        "close the list with `]`, or write the comma",
    ),
    "did not find expected ',' or '}'": (
        "a `{` is not closed, or a comma is missing",
        "close the mapping with `}`, or write the comma",
    ),
    "did not find expected node content": (
        "expected a value",
        "there is a bracket or comma where a value should be; quote it if it is a string",
    ),
    "found unexpected end of stream": ("a quote is not closed", "close the string with the quote it began with"),
    "block sequence entries are not allowed in this context": (
        "a `- ` cannot start here",
        "start the list on its own line, or write it as [a, b]",
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
        "one file holds one spec; check the brackets and indentation of what comes before",
    ),
    "did not find expected alphabetic or numeric character": (
        "`*` or `&` must be followed by a name",
        "a text that begins with `*` or `&` needs quotes",
    ),
}
_TIGHT = re.compile(r"[ ]*(?P<key>\w+):(?P<value>[^\s:#][^\s#]*)[ ]*(?:#.*)?$", re.MULTILINE)
_UNCLOSED = {"[": "did not find expected ',' or ']'", "{": "did not find expected ',' or '}'"}


class SyntaxProblem(Struct, frozen=True, kw_only=True):
    """A syntax error: what to call it, the offsets it is at, and where the bracket was opened that is not closed."""

    message: str
    help: str
    start: int
    end: int
    code: str = "GS004"
    opened: int | None = None


def explain_syntax_error(
    content: str,
    problem: str,
    *,
    offset: int,
    context: int | None,
    innermost: int | None,
    quoted: tuple[int, int] | None = None,
) -> SyntaxProblem:
    """Explain a problem that libyaml found at an offset, while reading what began at ``context``.

    ``innermost`` is where the innermost open collection begins, and ``quoted`` where the last text between quotes is.
    """
    offset = min(offset, len(content))
    bracket = None if innermost is None or content[innermost] not in _UNCLOSED else innermost
    line = max(content.rfind("\n", 0, offset), content.rfind("\r", 0, offset)) + 1
    indent = _INDENT.match(content, line)
    indent_end = line if indent is None else indent.end()
    tab = content.find("\t", line, indent_end)
    if bracket is None and tab >= 0:
        message, help = "a tab is used for indentation", "indent with spaces; most editors can convert tabs"
        return SyntaxProblem(code="GS003", message=message, help=help, start=tab, end=indent_end)
    if problem == "found character that cannot start any token":
        character = content[offset : offset + 1]
        message = f"a value cannot begin with {character!r}"
        help = f"quote the text: {character!r} is reserved in YAML"
        return SyntaxProblem(message=message, help=help, start=offset, end=offset + 1)
    if context is not None and content[context : context + 1] == "!":
        return explain_tag(content, context, offset)
    found = _explain_rest(content, offset, bracket, quoted)
    if found is not None:
        return found
    # A colon without a space after it, at the key or on the line above, whose value then continues.
    above = content.rfind("\n", 0, max(len(content[:line].rstrip()), 0)) + 1
    starts = {"mapping values are not allowed in this context": above, "could not find expected ':'": context}
    key = starts.get(problem)
    tight = None if key is None else _TIGHT.match(content, key)
    if tight is not None:
        message, help = "a space is missing after the colon", f"write `{tight['key']}: {tight['value']}`"
        return SyntaxProblem(message=message, help=help, start=tight.start("key"), end=tight.end("value"))
    if bracket is not None and problem in _UNCLOSED.values():
        found = _explain_bracket(content, offset, bracket)
        if found is not None:
            return found
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


def _explain_rest(
    content: str, offset: int, innermost: int | None, quoted: tuple[int, int] | None
) -> SyntaxProblem | None:
    """Explain what follows a value directly: a quote was meant as a part of it, or one above is not closed."""
    if innermost is None and content[:offset].rstrip(" ")[-1:] in ("]", "}") and content[offset : offset + 1].strip():
        end = content.find("\n", offset)
        message, help = "text follows the bracket that closes this value", "remove it, or write it on a line of its own"
        return SyntaxProblem(message=message, help=help, start=offset, end=len(content) if end < 0 else end)
    if quoted is None or content[quoted[1] : offset].strip(" ") or content[offset : offset + 1] in "\r\n]}":
        return None
    start, end = quoted
    if "\n" in content[start:end]:
        message, help = "a quote is not closed on its line", "close the string with the quote it began with"
        return SyntaxProblem(message=message, help=help, start=start, end=start + 1)
    message = "text follows the quote that closes this string"
    help = "for a quote inside a text use the other kind around it; for two values write a comma between them"
    return SyntaxProblem(message=message, help=help, start=start, end=end)


def _explain_bracket(content: str, offset: int, opened: int) -> SyntaxProblem | None:
    """Explain a bracket in a text without quotes, and one that closes what is not open."""
    bracket, before = content[offset : offset + 1], content[:offset].rstrip()[-1:]
    if bracket in ("}", "]"):
        message = f"this `{bracket}` does not close the `{content[opened]}` that is open"
        help = f"remove it, or write `{'}' if content[opened] == '{' else ']'}` before it"
        return SyntaxProblem(message=message, help=help, start=offset, end=offset + 1, opened=opened)
    if bracket not in _UNCLOSED or before in "]},\"'":
        return None
    start = offset - 1 if before == "$" else offset
    close = content.find({"[": "]", "{": "}"}[bracket], offset, (content + "\n").find("\n", offset))
    message = f"a text with `{content[start : offset + 1]}` in it needs quotes here"
    help = f'between brackets YAML reads `{bracket}` as the start of a collection: put `"` around the whole text'
    return SyntaxProblem(message=message, help=help, start=start, end=max(close, offset) + 1)


def explain_tag(content: str, start: int, end: int) -> SyntaxProblem:
    """Explain why a node's tag is refused; the tag precedes the value and may follow the anchor."""
    found = _TAG.search(content, start, max(end, start + 1))
    tag = found.group() if found else "!"
    first, last = found.span() if found else (start, end)
    message = f"tag {tag!r} is not part of the language"
    help = f'a tag would change the type of a value; a text that begins with `!` needs quotes: "{tag}"'
    return SyntaxProblem(code="GS006", message=message, help=help, start=first, end=last)


_BLOCK_STYLES = ("|", ">")
_QUOTES = ("'", '"')
_VERSION = (1, 2)


def read_yaml(text: SourceText, limits: Limits) -> Reading:
    """Return the data of a YAML document; raise SpecError with every problem of its text."""
    builder = Builder(text, limits)
    reader = _YamlReader(text, builder)
    try:
        reader.read()
    except YAMLError as error:
        marked = error if isinstance(error, MarkedYAMLError) else MarkedYAMLError(problem=str(error))
        problem = explain_syntax_error(
            text.content,
            marked.problem or "this is not YAML",
            offset=0 if marked.problem_mark is None else marked.problem_mark.index,
            context=None if marked.context_mark is None else marked.context_mark.index,
            innermost=builder.innermost,
            quoted=reader.quoted,
        )
        note = "" if problem.opened is None else f"it starts at {text.span(problem.opened, problem.opened).place}"
        builder.fail(problem.code, problem.message, problem.start, problem.end, note=note, help=problem.help)
    return builder.finish()


class _YamlReader:
    """Feed a builder with libyaml's events, which come one at a time and without recursion however deep the text is."""

    def __init__(self, text: SourceText, builder: Builder) -> None:
        self._content = text.content
        self._text = text
        self._builder = builder
        self._anchors: dict[str, Scalar] = {}
        self._collections: set[str] = set()
        self._repeated: set[str] = set()
        self._documents = 0
        self.quoted: tuple[int, int] | None = None
        """Where the last text between quotes is."""

    def read(self) -> None:
        """Read all events of the text."""
        parser = CBaseLoader(self._content)
        try:
            while not isinstance(event := parser.get_event(), StreamEndEvent | None):
                start, end = event.start_mark.index, event.end_mark.index
                match event:
                    case ScalarEvent():
                        self._take_scalar(event, start, end)
                    case CollectionStartEvent():
                        self._take_start(event, start, end)
                    case CollectionEndEvent():
                        # The end of a block collection is marked at the next token, lines below its last item.
                        self._builder.close(end if end > start else None)
                    case AliasEvent():
                        self._take_alias(event.anchor, start, end)
                    case DocumentStartEvent():
                        self._documents += 1
                        if self._documents > 1:
                            help = "one file holds one spec: move what follows to a separate file"
                            self._builder.fail("GS011", "a second document starts here", start, end, help=help)
                        if event.version not in (None, _VERSION):
                            message = "this document asks for an older YAML than 1.2"
                            help = "remove the directive, or write `%YAML 1.2`"
                            self._builder.report("GS004", message, start, end, help=help)
                    case _:
                        pass
        finally:
            parser.dispose()

    def _take_scalar(self, event: ScalarEvent, start: int, end: int) -> None:
        if event.style in _BLOCK_STYLES:
            end = start + len(self._content[start:end].rstrip())
        elif event.style in _QUOTES:
            self.quoted = (start, end)
        value: Scalar = event.value
        if event.tag is not None:
            self._refuse_tag(start, end)
        elif event.implicit[0] and value == "<<" and self._builder.awaits_key:
            help = "write out the keys; for a repeated value use a variable: `vars: {x: 1}` and `${x}`"
            self._builder.report("GS009", "merge keys are not part of the language", start, end, help=help)
            value = f"<<{start}"
        elif event.implicit[0]:
            try:
                value = resolve(event.value)
            except OutOfRangeError:
                help = "whole numbers have up to 64 bits, others are below 1.8e308; quote it if it is a text"
                self._builder.report("GS019", "this number is too large to hold", start, end, help=help)
                value = 0
        if event.anchor is not None:
            self._anchors[event.anchor] = value
            self._collections.discard(event.anchor)
        self._builder.add(value, start, end)

    def _take_start(self, event: CollectionStartEvent, start: int, end: int) -> None:
        if event.tag is not None:
            self._refuse_tag(start, end)
        if event.anchor is not None:
            self._collections.add(event.anchor)
            self._repeated.discard(event.anchor)
            self._anchors.pop(event.anchor, None)
            message = f"anchor '&{event.anchor}' is on a collection; only single values take one"
            help = "write out the collection where it is used, or put single values under `vars`"
            self._builder.report("GS007", message, start, end, help=help)
        self._builder.open("mapping" if isinstance(event, MappingStartEvent) else "list", start, end)

    def _take_alias(self, name: str, start: int, end: int) -> None:
        if name in self._collections:
            # Further aliases of the collection have the same cause and the same remedy.
            if name not in self._repeated:
                self._repeated.add(name)
                help = "write out the collection wherever it is used; an alias repeats single values only"
                self._builder.report("GS008", f"alias '*{name}' repeats a collection", start, end, help=help)
        elif name not in self._anchors:
            near = closest(name, (*self._anchors, *self._collections), 1)
            label = f"did you mean '*{near[0]}'?" if near else ""
            quoted = f'a text that begins with `*` needs quotes: "*{name}"'
            help = f"an alias repeats a value marked `&{name}` above it; {quoted}"
            self._builder.report("GS015", f"no value above is marked '&{name}'", start, end, label=label, help=help)
        is_key = self._builder.awaits_key
        self._builder.add(self._anchors.get(name, f"*{start}" if is_key else None), start, end)

    def _refuse_tag(self, start: int, end: int) -> None:
        problem = explain_tag(self._content, start, end)
        self._builder.report(problem.code, problem.message, problem.start, problem.end, help=problem.help)

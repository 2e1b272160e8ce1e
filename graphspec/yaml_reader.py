"""Read YAML: libyaml's events, our own data. Nothing of YAML that runs code, hides a value or repeats one gets in."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

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
from yaml.events import Event

from graphspec.builder import Builder, Reading
from graphspec.limits import Limits
from graphspec.scalars import OutOfRangeError, Scalar, resolve
from graphspec.suggestions import closest
from graphspec.text import SourceText
from graphspec.yaml_syntax import explain_syntax_error, explain_tag

_BLOCK_STYLES = ("|", ">")
_VERSION = (1, 2)


def read_yaml(text: SourceText, limits: Limits) -> Reading:
    """Return the data of a YAML document; raise SpecError with every problem of its text."""
    builder = Builder(text, limits)
    reader = _YamlReader(text, builder)
    with _paused_garbage_collector():
        try:
            reader.read()
        except YAMLError as error:
            _fail_syntax(text, builder, error)
    return builder.finish()


@contextmanager
def _paused_garbage_collector() -> Generator[None]:
    """Keep the collector from scanning a tree that only grows: it would take most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _fail_syntax(text: SourceText, builder: Builder, error: YAMLError) -> NoReturn:
    marked = error if isinstance(error, MarkedYAMLError) else MarkedYAMLError(problem=str(error))
    problem = explain_syntax_error(
        text.content,
        marked.problem or "this is not YAML",
        offset=0 if marked.problem_mark is None else marked.problem_mark.index,
        context=None if marked.context_mark is None else marked.context_mark.index,
        innermost=builder.innermost,
    )
    note = "" if problem.opened is None else f"it starts at {text.span(problem.opened, problem.opened).place}"
    builder.fail(problem.code, problem.message, problem.start, problem.end, note=note, help=problem.help)


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

    def read(self) -> None:
        """Read all events of the text."""
        parser = CBaseLoader(self._content)
        try:
            while not isinstance(event := parser.get_event(), StreamEndEvent | None):
                self._take(event)
        finally:
            parser.dispose()

    def _take(self, event: Event) -> None:
        match event:
            case ScalarEvent():
                self._take_scalar(event)
            case CollectionStartEvent():
                self._take_start(event)
            case CollectionEndEvent():
                # The end of a block collection is marked at the next token, lines below its last item.
                is_flow = event.end_mark.index > event.start_mark.index
                self._builder.close(event.end_mark.index if is_flow else None)
            case AliasEvent():
                self._take_alias(event)
            case DocumentStartEvent():
                self._take_document(event)
            case _:
                pass

    def _take_scalar(self, event: ScalarEvent) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in _BLOCK_STYLES:
            end = start + len(self._content[start:end].rstrip())
        value: Scalar = event.value
        if event.tag is not None:
            self._refuse_tag(start, end)
        elif event.implicit[0]:
            value = self._resolve(event.value, start, end)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
            self._collections.discard(event.anchor)
        self._builder.add(value, start, end)

    def _resolve(self, plain: str, start: int, end: int) -> Scalar:
        """Return the value of a plain scalar, after reporting what it must not be."""
        if plain == "<<" and self._builder.awaits_key:
            help = "write the keys out; a value used often is a variable: `vars: {x: 1}` and `${x}`"
            self._builder.report("GS009", "merge keys are not part of the language", start, end, help=help)
            return f"<<{start}"
        try:
            return resolve(plain)
        except OutOfRangeError:
            help = "whole numbers have up to 64 bits, others are below 1.8e308; quote it if it is a text"
            self._builder.report("GS019", "this number is too large to hold", start, end, help=help)
            return 0

    def _take_start(self, event: CollectionStartEvent) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if event.tag is not None:
            self._refuse_tag(start, end)
        if event.anchor is not None:
            self._collections.add(event.anchor)
            self._repeated.discard(event.anchor)
            self._anchors.pop(event.anchor, None)
            help = "write the collection out where it is used, or put single values under `vars`"
            self._builder.report(
                "GS007",
                f"anchor '&{event.anchor}' is on a collection; only single values take one",
                start,
                end,
                help=help,
            )
        self._builder.open("mapping" if isinstance(event, MappingStartEvent) else "list", start, end)

    def _take_alias(self, event: AliasEvent) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        name: str = event.anchor
        if name in self._collections:
            self._refuse_repetition(name, start, end)
        elif name not in self._anchors:
            self._refuse_unknown_alias(name, start, end)
        is_key = self._builder.awaits_key
        self._builder.add(self._anchors.get(name, f"*{start}" if is_key else None), start, end)

    def _refuse_repetition(self, name: str, start: int, end: int) -> None:
        """Tell the first alias of a collection; the others have the same cause and the same remedy."""
        if name not in self._repeated:
            self._repeated.add(name)
            help = "write the collection out wherever it is used; an alias repeats single values only"
            self._builder.report("GS008", f"alias '*{name}' repeats a collection", start, end, help=help)

    def _refuse_unknown_alias(self, name: str, start: int, end: int) -> None:
        near = closest(name, (*self._anchors, *self._collections), 1)
        label = f"did you mean '*{near[0]}'?" if near else ""
        help = (
            f'an alias repeats a value marked `&{name}` above it; a text that begins with `*` needs quotes: "*{name}"'
        )
        self._builder.report("GS015", f"no value above is marked '&{name}'", start, end, label=label, help=help)

    def _refuse_tag(self, start: int, end: int) -> None:
        problem = explain_tag(self._content, start, end)
        self._builder.report(problem.code, problem.message, problem.start, problem.end, help=problem.help)

    def _take_document(self, event: DocumentStartEvent) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        self._documents += 1
        if self._documents > 1:
            help = "one file holds one spec: move what follows into a file of its own"
            self._builder.fail("GS011", "a second document starts here", start, end, help=help)
        if event.version not in (None, _VERSION):
            help = "remove the directive, or write `%YAML 1.2`"
            self._builder.report("GS004", "this document asks for an older YAML than 1.2", start, end, help=help)

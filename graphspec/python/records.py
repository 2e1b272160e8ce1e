"""What a graph declares: entries with the places where they are declared."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias, cast

from msgspec import Struct, field

from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.limits import Limits
from graphspec.python.sites import Site, Sources

Section: TypeAlias = Literal["inputs", "state", "models", "ops"]
_DEEPEST = Limits().depth


class ArgumentError(SpecError, TypeError):
    """An argument that cannot be part of a graph: what was found, where, and what to write instead."""


class Formula(Struct, frozen=True, kw_only=True):
    """A call or a loss of the library on operands, which may be formulas of their own."""

    function: str
    family: Literal["call", "loss"]
    operands: tuple[object, ...]
    options: Mapping[str, object]
    is_operator: bool = False

    @property
    def is_text(self) -> bool:
        """Return whether an expression can hold it: schedules and literals such as `true` are for ops."""
        if any(isinstance(each, Mapping) for each in self.options.values()):
            return False
        numbers = [each for each in self.operands if not isinstance(each, Ref)]
        return all(
            isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in numbers
        )


class Header(Struct, frozen=True, kw_only=True):
    """Fields that are not those of one entry, and the call that gave them: of the document, or of a scope."""

    fields: Mapping[str, object]
    site: Site


class Entry(Struct, eq=False, kw_only=True):
    """Something declared: an input, a state, a model or an op."""

    section: Section
    kind: str
    site: Site
    fields: dict[str, object]
    name: str | None = None
    """The name that it is given."""
    assigned: str | None = None
    """The name that it is assigned to."""
    scope: str = ""
    """What is put before its names."""
    shared: tuple[Header, ...] = ()
    """Fields of the scopes that it is declared in, for all their ops."""
    holder: Entry | None = None
    """The op that holds it, which repeats it or chooses it."""
    part: tuple[str | int, ...] = ()
    """Where the ops that it is among stand below that."""
    results: tuple[str | None, ...] = ()
    """The names of several results, as far as they are known."""
    are_given: bool = False
    """Whether these names are given, not assigned."""
    formula: Formula | None = None
    weight: int = 1
    """How many operations an expression of it has."""
    is_written: bool = False
    """Whether it is written as an expression, even if it is one call alone."""
    pinned: bool = False
    """Whether it is an op of its own in any case."""
    positional: tuple[str, ...] = ()
    """The fields that positional arguments are; those that follow are inputs."""

    @property
    def inner(self) -> str:
        """Return what is put before the names of the ops that it holds, which no name in a document begins with."""
        return f"{self.scope}{self.name}/"

    @property
    def is_text(self) -> bool:
        """Return whether it can be written as an expression."""
        return self.formula is not None and self.formula.is_text and not self.fields.keys() & {"weight", "lazy"}

    @property
    def is_free(self) -> bool:
        """Return whether it may become part of the expression of what uses it."""
        is_plain = self.name is None and self.assigned is None and not self.fields and not self.results
        return self.is_text and is_plain and not self.pinned


class Recorder(Struct, kw_only=True):
    """What one graph declares, in order."""

    title: str
    sources: Sources = field(default_factory=Sources)
    entries: list[Entry] = []
    scope: str = ""
    shared: tuple[Header, ...] = ()
    holder: Entry | None = None
    part: tuple[str | int, ...] = ()
    _taken: dict[str, Site] = {}

    def add(self, entry: Entry) -> Entry:
        """Record an entry.

        Raises SpecError for a name that is taken, for values of another graph, and for what is no op inside of one.
        """
        if self.holder is not None and entry.section != "ops":
            message = (
                f"'{self.holder.name}' holds ops, and this is {'an' if entry.kind == 'input' else 'a'} {entry.kind}"
            )
            raise self.error(entry.site, message, "declare it before the `with` statement")
        entry.scope, entry.holder, entry.part = self.scope, self.holder, self.part
        entry.shared = self.shared if entry.section == "ops" else ()
        for ref in find_refs([entry.fields, *(entry.formula.operands if entry.formula else ())], entry.site, self):
            self.require_own(ref, entry.site)
        for name in (entry.name, *(entry.results if entry.are_given else ())):
            self._take(name, entry.site)
        self.entries.append(entry)
        return entry

    @contextmanager
    def open(self, name: str, header: Header) -> Generator[None]:
        """Put a name before those of all entries, and give ops the fields of a scope, until it is closed."""
        before = self.scope, self.shared
        self.scope, self.shared = f"{self.scope}{name}.", (*self.shared, header) if header.fields else self.shared
        try:
            yield
        finally:
            self.scope, self.shared = before

    @contextmanager
    def hold(self, entry: Entry, part: tuple[str | int, ...]) -> Generator[None]:
        """Put all entries into an op until it is closed: their names are local, one set of them for each part."""
        before = self.holder, self.part, self.scope, self.shared
        self.holder, self.part, self.scope = entry, part, f"{entry.inner}{'.'.join(map(str, part))}."
        self.shared = ()  # the op has the fields of its scopes, and they hold for all that is in it
        try:
            yield
        finally:
            self.holder, self.part, self.scope, self.shared = before

    def rename(self, entry: Entry, fields: dict[str, object], site: Site) -> None:
        """Make an op of its own of an expression."""
        name = fields.pop("name", None)
        self._take(name, site)
        entry.name, entry.assigned, entry.site = cast("str | None", name), site.name, site
        entry.fields, entry.is_written, entry.pinned = fields, True, True

    def require_own(self, ref: Ref, site: Site) -> None:
        """Raise ArgumentError for what belongs to another graph."""
        if ref.recorder is not self:
            message = f"{ref!r} is of another graph, {ref.recorder.title!r}"
            help = f"declare it in the graph {self.title!r}, too: graphs share nothing"
            raise self.error(site, message, help)

    def error(self, site: Site, message: str, help: str) -> ArgumentError:
        """Return the error for an argument."""
        return ArgumentError([Diagnostic(code="GS275", message=message, span=site.span, help=help)], self.sources.texts)

    def _take(self, name: object, site: Site) -> None:
        if name is None:
            return
        if not isinstance(name, str):
            raise self.error(site, f"a name is a text, found {describe(name)}", "write `name='fake'`")
        full = f"{self.scope}{name}"
        if full in self._taken:
            label = f"first declared at {self._taken[full].span.place}"
            message = f"'{full}' is declared twice"
            help = "inputs, states, models, ops and values share one namespace: rename one of them"
            found = Diagnostic(code="GS101", message=message, span=site.span, label=label, help=help)
            raise SpecError([found], self.sources.texts)
        self._taken[full] = site


class Ref:
    """Something that a graph has a name for."""

    __slots__ = ("entry", "recorder", "result")

    def __init__(self, recorder: Recorder, entry: Entry, result: int | Literal["loss"] | None = None) -> None:
        self.recorder, self.entry, self.result = recorder, entry, result

    def __repr__(self) -> str:
        entry = self.entry
        own = entry.results[self.result] if isinstance(self.result, int) else entry.name or entry.assigned
        return f"<{entry.kind} {f'{entry.scope}{own}' if own else 'without a name'}>"


def find_refs(value: object, site: Site, recorder: Recorder, depth: int = 0) -> Iterator[Ref]:
    """Yield what a field mentions."""
    if depth > _DEEPEST:
        raise recorder.error(
            site, f"collections are nested more than {_DEEPEST} deep", "does one of them contain itself?"
        )
    match value:
        case Ref():
            yield value
        case Mapping():
            for each in cast("Mapping[object, object]", value).values():
                yield from find_refs(each, site, recorder, depth + 1)
        case list() | tuple():
            for each in cast("Sequence[object]", value):
                yield from find_refs(each, site, recorder, depth + 1)
        case _:
            pass


def describe(value: object) -> str:
    """Return what a value is called in messages."""
    return repr(value) if isinstance(value, Ref) else f"a {type(value).__name__}"

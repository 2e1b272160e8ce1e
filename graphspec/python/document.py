"""The document that a graph declares, with the places of its parts in Python files."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from msgspec import Struct

from graphspec.declare.blocks import CONTAINERS
from graphspec.declare.fields import is_name
from graphspec.declare.formulas import DIFFERENTIATED
from graphspec.diagnostics import Span
from graphspec.expand.plain import listed
from graphspec.python.records import Entry, Header, Recorder, Ref, find_refs
from graphspec.python.sites import Site
from graphspec.python.values import Value
from graphspec.read.builder import Path, Plain
from graphspec.read.source import Document, Place
from graphspec.write.formula import Called, Operand, write_formula


def write_document(recorder: Recorder, *headers: Header) -> Document:
    """Return the document of everything that was recorded; raise ArgumentError for what no document holds."""
    return _Writer(recorder, headers).write()


class _Writer(Struct):
    """Names entries and writes them."""

    recorder: Recorder
    headers: tuple[Header, ...]
    inlined: set[Entry] = set()
    names: dict[Entry, str] = {}
    results: dict[Entry, tuple[str, ...]] = {}
    places: dict[Path, Place] = {}
    user: Entry | None = None
    """The entry that is being written."""

    def write(self) -> Document:
        """Return the document."""
        self._find_inlined()
        self._name_all()
        first = self.headers[0].site.span
        data: dict[str, Plain] = {"graphspec": 1}
        self.places[()] = Place(key=None, value=first)
        for header in self.headers:
            for key, each in header.fields.items():
                data[key] = self._spell(each, header.site)
            self._place((), header.fields, header.site)
        for entry in self.recorder.entries:
            if entry in self.inlined:
                continue
            self.user = entry
            path = (*self._find_section(entry), self._localize(entry, self.names[entry]))
            section: dict[str, Plain] = data
            for key, following in pairwise(path):
                if isinstance(key, str):
                    found = section.setdefault(key, {})
                    found = found[following] if isinstance(found, list) and isinstance(following, int) else found
                    assert isinstance(found, dict)
                    section = found
            fields = self._share(entry, self._write_entry(entry))
            section[str(path[-1])] = fields
            self.places[path] = Place(key=entry.site.span, value=entry.site.span)
            for header in entry.shared:
                self._place(path, header.fields, header.site, ("name",))
            self._place(path, fields, entry.site, entry.positional)
            if "expr" in fields:
                self.places[*path, "expr"] = Place(key=entry.site.span, value=entry.site.span)
        self.user = None
        texts = self.recorder.sources.texts
        return Document(file=first.file, text=texts.get(first.file, ""), data=data, places=self.places, others=texts)

    def _find_section(self, entry: Entry) -> Path:
        """Return where an entry is written: in its section, or in the op that holds it."""
        if entry.holder is None:
            return (entry.section,)
        return (*self._find_section(entry.holder), self._localize(entry.holder, self.names[entry.holder]), *entry.part)

    def _localize(self, entry: Entry, name: str) -> str:
        """Return a name of an entry as the ops next to it, and those that they hold, write it."""
        held = "" if entry.holder is None else f"{entry.holder.inner}{'.'.join(map(str, entry.part))}."
        return name.removeprefix(held)

    def _find_inlined(self) -> None:
        """Find the values that are used once, and there as a part of an expression."""
        uses, inside = Counter[Entry](), set[Entry]()
        held = [header.fields for header in self.headers]
        for fields, site in ((fields, header.site) for fields, header in zip(held, self.headers, strict=True)):
            uses.update(each.entry for each in find_refs(fields, site, self.recorder) for _ in range(2))
        for entry in self.recorder.entries:
            slot = entry.fields.get(DIFFERENTIATED.get(entry.kind, ""))
            shared = [header.fields for header in entry.shared]
            refs = [each.entry for each in find_refs([entry.fields, *shared], entry.site, self.recorder)]
            operands = entry.formula.operands if entry.formula is not None else ()
            parts = [each.entry for each in operands if isinstance(each, Value)]
            uses.update([*refs, *parts])
            differentiated = [slot.entry] if isinstance(slot, Value) and slot.entry.shared is entry.shared else []
            inside |= {*(parts if entry.is_text else ()), *differentiated}
        self.inlined |= {each for each in inside if each.is_free and uses[each] == 1}

    def _name_all(self) -> None:
        """Name what has no name given: after what it is assigned to, else by its kind and a number."""
        ours = [entry for entry in self.recorder.entries if entry not in self.inlined]
        taken = {f"{entry.scope}{entry.name}" for entry in ours if entry.name is not None}
        taken |= {f"{entry.scope}{each}" for entry in ours if entry.are_given for each in entry.results}

        def claim(wanted: str) -> str:
            """Return a name, with a number where it is taken."""
            number = 1
            while (name := wanted if number == 1 else f"{wanted}_{number}") in taken:
                number += 1
            taken.add(name)
            return name

        for entry in ours:  # before what is numbered
            if entry.name is not None:
                self.names[entry] = f"{entry.scope}{entry.name}"
            elif entry.assigned is not None:
                self.names[entry] = claim(f"{entry.scope}{entry.assigned}")
            if entry.are_given:
                self.results[entry] = tuple(f"{entry.scope}{each}" for each in entry.results)
            elif entry.results and None not in entry.results:
                self.results[entry] = tuple(claim(f"{entry.scope}{each}") for each in entry.results)
        counts = Counter[str]()

        def number(kind: str) -> str:
            """Return the next free name of a kind."""
            while True:
                counts[kind] += 1
                if (name := f"{kind}_{counts[kind]}") not in taken:
                    taken.add(name)
                    return name

        for entry in ours:
            if entry not in self.names:
                self.names[entry] = number(f"{entry.scope}{entry.kind}")
            if entry.results and entry not in self.results:
                self.results[entry] = tuple(number(f"{self.names[entry]}_value") for _ in entry.results)

    def _find_name(self, ref: Ref, *, op: bool = False) -> str:
        """Return the name of a value, or of the op that gives it, as what is being written sees it.

        Raises ArgumentError where that does not see it, because another op holds it.
        """
        entry, user = ref.entry, self.user
        around = list[tuple[Entry | None, Path]]()
        while user is not None:
            around.append((user.holder, user.part))
            user = user.holder
        if entry.holder is not None and (entry.holder, entry.part) not in around and entry.holder is not self.user:
            message = f"{Ref(self.recorder, entry)!r} is inside of '{entry.holder.name}'"
            site = entry.site if self.user is None else self.user.site
            raise self.recorder.error(site, message, f"take it out: `{entry.holder.name}.output(...)`")
        return self._localize(entry, self._find_whole(ref, op=op))

    def _find_whole(self, ref: Ref, *, op: bool = False) -> str:
        """Return the name of a value, or of the op that gives it, with all that it is inside of."""
        entry = ref.entry
        if op or ref.result is None:
            return self.names[entry]
        if entry.kind in CONTAINERS and isinstance(ref.result, int):
            outputs = entry.fields.get("outputs") or [*cast("Mapping[str, object]", entry.fields.get("else", {}))]
            given = cast("list[object]", outputs)[ref.result]
            own = self._localize(given.entry, self._find_whole(given)) if isinstance(given, Ref) else given
            return f"{self.names[entry]}.{own}"
        if isinstance(ref.result, int):
            return self.results[entry][ref.result]
        loss = entry.fields.get("loss")
        if isinstance(loss, Value) and loss.entry not in self.inlined:
            return self._find_whole(loss)
        if isinstance(loss, str) and all(map(is_name, loss.split("."))):
            return loss
        return f"{self.names[entry]}.loss"

    def _write_entry(self, entry: Entry) -> dict[str, Plain]:
        """Return the fields of an entry."""
        fields: dict[str, Plain] = {}
        for key, each in entry.fields.items():
            if isinstance(each, Value) and each.entry in self.inlined:
                fields[key] = write_formula(self._read(each.entry))
            else:
                fields[key] = self._spell(each, entry.site, key)
        if entry.kind in CONTAINERS and isinstance(outputs := fields.get("outputs"), list):
            fields["outputs"] = [each for index, each in enumerate(outputs) if each not in outputs[:index]]
        if entry.results:
            given = entry.fields.get("outputs")
            listed = (
                cast("Sequence[object]", given) if isinstance(given, list | tuple) else (None,) * len(entry.results)
            )
            named: list[Plain] = []
            for name, each in zip(self.results[entry], listed, strict=True):
                taps = list(cast("Mapping[str, object]", each).values()) if isinstance(each, Mapping) else []
                named.append({name: self._spell(taps[0], entry.site)} if taps else name)
            fields["outputs"] = named
        if entry.formula is None:
            return fields
        parts = [each for each in entry.formula.operands if isinstance(each, Value) and each.entry in self.inlined]
        if entry.is_text and (parts or entry.formula.is_operator or entry.is_written):
            return {"expr": write_formula(self._read(entry)), **fields}
        formula = entry.formula
        options = {key: self._spell(each, entry.site) for key, each in formula.options.items()}
        reduction = (
            {"reduction": options.pop("reduction")} if formula.family == "loss" and "reduction" in options else {}
        )
        inputs = [self._spell(each, entry.site) for each in formula.operands]
        called: dict[str, Plain] = {formula.family: formula.function, "inputs": inputs}
        return {**called, **({"args": options} if options else {}), **reduction, **fields}

    def _share(self, entry: Entry, fields: dict[str, Plain]) -> dict[str, Plain]:
        """Return the fields of an op with those of its scopes; raise ArgumentError for a mode that both have."""
        for header in entry.shared:
            for key, each in header.fields.items():
                given = self._spell(each, header.site, key)
                if key == "after":
                    fields[key] = [*listed(fields.get(key)), *listed(given)]
                elif key in fields:
                    message = f"`{key}` of the scope holds for all its ops, but '{self.names[entry]}' has its own"
                    raise self.recorder.error(entry.site, message, "write it once")
                else:
                    fields[key] = given
        return fields

    def _read(self, entry: Entry) -> Called:
        """Return the formula of an entry with those of its parts."""
        assert entry.formula is not None
        operands: list[Operand] = []
        for each in entry.formula.operands:
            if isinstance(each, Value):
                operands.append(self._read(each.entry) if each.entry in self.inlined else self._find_name(each))
            elif isinstance(each, int | float):
                operands.append(each)
        return Called(function=entry.formula.function, operands=tuple(operands), options=entry.formula.options)

    def _spell(self, value: object, site: Site, key: str = "") -> Plain:
        """Return plain data; raise ArgumentError for what no document holds."""
        match value:
            case Ref():
                self.recorder.require_own(value, site)
                return self._find_name(value, op=key in ("after", "every"))
            case None | bool():
                return value
            case str():
                return value.replace("${", "$${")  # there are no variables
            case int():
                return int(value)
            case float():
                return float(value)
            case Mapping():
                items = cast("Mapping[object, object]", value).items()
                return {str(name): self._spell(each, site) for name, each in items}
            case list() | tuple():
                return [self._spell(each, site, key) for each in cast("Sequence[object]", value)]
            case _:
                pass
        help = "write texts, lists, dictionaries, and numbers, those of other libraries as `int(x)` or `float(x)`"
        raise self.recorder.error(site, f"a spec cannot hold a {type(value).__name__}", help)

    def _place(self, path: Path, fields: Mapping[str, object], site: Site, positional: Sequence[str] = ()) -> None:
        """Find the places of fields among the arguments of a call."""
        if not isinstance(site.node, ast.Call):
            return
        args = fields.get("args")
        for keyword in site.node.keywords:
            if keyword.arg is None:
                continue
            name = keyword.arg.rstrip("_")
            nested = name not in fields and isinstance(args, Mapping) and name in args
            own: Path = (*path, "args", name) if nested else (*path, name)
            self._place_keyword(own, keyword, site)
        for index, node in enumerate(site.node.args):
            if isinstance(node, ast.Starred):
                break
            own = (*path, positional[index]) if index < len(positional) else (*path, "inputs", index - len(positional))
            self._place_value(own, node, site)

    def _place_keyword(self, path: Path, keyword: ast.keyword, site: Site) -> None:
        self._place_value(path, keyword.value, site)
        whole = self.recorder.sources.span(site, keyword)
        end = whole.column + len(keyword.arg or "")
        key = Span(file=whole.file, line=whole.line, column=whole.column, end_line=whole.line, end_column=end)
        self.places[path] = Place(key=key, value=self.places[path].value)

    def _place_value(self, path: Path, node: ast.expr, site: Site) -> None:
        """Find the places of a value and of what it is made of."""
        span = self.recorder.sources.span(site, node)
        self.places[path] = Place(key=None, value=span)
        for key, key_node, inner in _find_parts(node):
            if isinstance(key_node, ast.keyword):
                self._place_keyword((*path, key), key_node, site)
                continue
            self._place_value((*path, key), inner, site)
            if key_node is not None:
                place = self.recorder.sources.span(site, key_node)
                self.places[*path, key] = Place(key=place, value=self.places[*path, key].value)


def _find_parts(node: ast.expr) -> Iterator[tuple[str | int, ast.expr | ast.keyword | None, ast.expr]]:
    """Yield the parts of a collection or the keyword arguments of a call: key, its syntax, and that of the value."""
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str | int):
                    yield str(key.value), key, value
        case ast.List() | ast.Tuple():
            for index, each in enumerate(node.elts):
                if isinstance(each, ast.Starred):
                    return
                yield index, None, each
        case ast.Call():
            for keyword in node.keywords:
                if keyword.arg is not None:
                    yield keyword.arg.rstrip("_"), keyword, keyword.value
        case _:
            pass

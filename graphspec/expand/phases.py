"""Phases: ops that come one group after another, written as `after` on each."""

from __future__ import annotations

from msgspec.structs import replace

from graphspec.declare.graph import find_kinds
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.expand.copies import find_holder
from graphspec.expand.formulas import Overlaid, find_held
from graphspec.expand.plain import listed
from graphspec.read.source import Document, Path, Place, Plain
from graphspec.words import did_you_mean

WRITES = frozenset({"update", "ema", "copy", "assign"})
"""Kinds of ops that write something."""


def apply_phases(document: Document) -> Document:
    """Return a document without phases: their ops say themselves that they come after all writers of earlier ones.

    Raises SpecError for names of no op, and for an op in two phases. What is no list of lists of names is left, and
    reported where the document is read.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(ops := data.get("ops"), dict):
        return document
    written = listed(data.get("phases"))
    phases = [[name for name in each if isinstance(name, str)] for each in written if isinstance(each, list)]
    if not written or phases != written or not all(phases):
        return document
    problems: list[Diagnostic] = []
    seen: dict[str, int] = {}
    for index, names in enumerate(phases):
        for at, name in enumerate(names):
            span = document.value_span(("phases", index, at))
            if name not in ops:
                message, help = f"`phases` names '{name}', which is not declared; expected an op", "write an op's name"
                label = did_you_mean(name, ops)
                problems.append(Diagnostic(code="GS069", message=message, span=span, label=label, help=help))
            elif name in seen:
                message = f"'{name}' is in two phases, or twice in one: {seen[name] + 1} and {index + 1}"
                problems.append(Diagnostic(code="GS069", message=message, span=span, help="write it once"))
            seen.setdefault(name, index)
    if problems:
        raise SpecError(problems, document.texts)
    changed, before, places = dict(ops), list[Plain](), dict[Path, Place]()
    for index, names in enumerate(phases):
        for at, name in enumerate(names if before else ()):
            op = ops[name]
            if isinstance(op, dict):
                own, path = listed(op.get("after")), ("ops", name, "after")
                added = [each for each in before if each not in own]
                changed[name] = {**op, "after": [*own, *added]}
                span = document.value_span(("phases", index, at))
                place = Place(key=None, value=replace(span, via=(f"phase {index + 1} at {span.place}",)))
                places.update({(*path, len(own) + each): place for each in range(len(added))})
                places[path] = document.places.get(path, place)
        before += [name for name in names if _writes(ops[name])]
    rest: dict[str, Plain] = {key: each for key, each in data.items() if key != "phases"}
    return replace(document, data={**rest, "ops": changed}, places=Overlaid(document.places, places))


def _writes(op: Plain) -> bool:
    """Return whether an op writes something, or may hold an op that does."""
    if not isinstance(op, dict):
        return False
    held = (each for _, ops in find_held(op) for each in ops.values())
    return find_holder(op) == "use" or not WRITES.isdisjoint(find_kinds(op)) or any(map(_writes, held))

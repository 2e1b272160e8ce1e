"""Completion: the names and the keys that may stand where the cursor is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphspec.analysis.scope import Facet
from graphspec.check.names import WANTED
from graphspec.declare.formulas import DIFFERENTIATED
from graphspec.declare.graph import find_kinds
from graphspec.declare.library import CALLS, LOSSES, Signature
from graphspec.declare.ops.base import Role
from graphspec.expand.copies import COMMON
from graphspec.expand.formulas import is_formula
from graphspec.expand.parsed import parse_op
from graphspec.read.arithmetic import FUNCTIONS
from graphspec.read.expressions import PI
from graphspec.read.source import Path, Plain
from runtime.lsp.cursor import MARK, Cursor, find_cursors
from runtime.lsp.keys import find_keys, find_words
from runtime.lsp.names import TRAIN, Names, find_names, hold_scope
from runtime.lsp.snapshot import Snapshot

Kind: TypeAlias = Literal["key", "word", "name", "model", "variable", "function", "block", "option"]

_OPEN = re.compile(r"\$\{(?P<equals>=?)[^{}]*$")
_COLON = re.compile(r"[\w.]*[\"']?[ \t]*:", re.ASCII)
_CALL = re.compile(r"(?P<function>\w+)\((?P<rest>[^()]*(\([^()]*\)[^()]*)*)$", re.ASCII)
_SAMPLES: tuple[dict[str, Plain], ...] = (
    {"forward": "m"},
    {"call": "neg", "inputs": "x"},
    {"random": "normal", "shape": [1]},
    {"random": "normal", "like": "x"},
    {"schedule": "constant", "value": 1},
    {"gradient": "x", "wrt": "m"},
    {"transform": "normalize", "inputs": "g"},
    {"update": "m", "loss": "x"},
    {"update": "m", "gradients": "g"},
    {"ema": "m", "tau": 0.1},
    {"metric": "mean", "inputs": "x"},
    {"loss": "mse", "inputs": ["x", "y"]},
    {"copy": "m", "into": "n"},
    {"assign": "s", "value": "x"},
    {"adapt": "m", "loss": "x", "lr": 0.1},
    {"adapt": "m", "gradients": "g", "lr": 0.1},
    {"use": "b"},
)
"""The least that an op of each kind has: with the field at the cursor it says what is wanted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Something that may be written at the cursor."""

    label: str
    kind: Kind
    detail: str = ""
    text: str = ""
    """What it means."""
    after: str = ""
    """What is written after it."""

    def write(self, text: str, start: int, offset: int) -> str:
        """Return what is written for it in place of the word from ``start`` up to the cursor at ``offset``."""
        if self.kind == "key" and _COLON.match(text, offset):
            return self.label
        # A word that begins with an indicator of YAML needs quotes, unless it stands in some.
        if self.label[:1] == "!" and text[start - 1 : start] not in ('"', "'"):
            return f'"{self.label}"'
        return self.label + self.after


def complete(snapshot: Snapshot, last: Names, offset: int) -> tuple[int, tuple[Suggestion, ...]]:
    """Return the offset at which the word at the cursor begins, and what may stand in its place.

    ``last`` are the names of the text when it could be read as a whole.
    """
    for cursor in find_cursors(snapshot, offset):
        names = find_names(cursor.document)
        if not cursor.is_whole:
            declared, uses = {**last.declared, **names.declared}, {**last.uses, **names.uses}
            names = Names(declared=declared, uses=uses, outputs={**last.outputs, **names.outputs})
        found: dict[str, Suggestion] = {}
        for each in _suggest(cursor, names):
            if MARK not in each.label:
                found.setdefault(each.label, each)
        if found or not cursor.is_whole:
            return cursor.start, tuple(found.values())
    return offset, ()


def _suggest(cursor: Cursor, names: Names) -> Iterator[Suggestion]:
    path, data, scope = cursor.path, cursor.document.data, find_scope(cursor.path)
    opened = _OPEN.search(cursor.before)
    if opened is not None:
        variables = (each for each in names.declared if each.space == "variable" and each.scope in ("", scope))
        yield from (Suggestion(label=each.name, kind="variable") for each in variables)
        if opened["equals"]:
            yield from (Suggestion(label=name, kind="function", after="(") for name in FUNCTIONS)
    elif cursor.is_key:
        given = tuple(_list_given(cursor, names))
        yield from given
        written = cursor.get(path)
        taken = written.keys() if isinstance(written, dict) else set[str]()
        keys: Mapping[str, str] = {} if given else find_keys(data, path)
        # What is for ops of this kind stands before what every op has.
        common = COMMON if find_op((*path, "")) == path else ()
        for key in sorted(keys.keys() - taken, key=lambda key: (key in common, [*keys].index(key))):
            yield Suggestion(label=key, kind="key", text=keys[key], after=": ")
    elif is_expression(cursor):
        called = _CALL.search(cursor.before)
        signature = None if called is None else CALLS.get(called["function"]) or LOSSES.get(called["function"])
        for option in signature.options if signature is not None else ():
            yield Suggestion(label=option.name, kind="option", text=option.meaning, after="=")
        yield from list_names(names, WANTED["value"].facets, scope)
        yield from _list_functions()
    else:
        role = find_role(cursor)
        if role is not None:
            yield from list_names(names, WANTED[role].facets, scope)
            if role == "loss":
                yield from _list_functions()
        yield from _list_others(path, names)
        words = find_words(data, path)
        yield from (Suggestion(label=word, kind="word", text=words[word]) for word in words)


def find_scope(path: Path) -> str:
    """Return the scope of the names at a path: of a block, or of what an op holds; nothing for the document."""
    scope = str(path[1]) if len(path) > 1 and path[0] == "blocks" else ""
    for op in _find_ops(path)[:-1]:
        scope = hold_scope(scope, str(op[-1]))
    return scope


def find_op(path: Path) -> Path | None:
    """Return the path of the op that a path is in, the innermost one."""
    found = [op for op in _find_ops(path) if len(path) > len(op)]
    return found[-1] if found else None


def _find_ops(path: Path) -> list[Path]:
    """Return the paths of the ops that a path is in, or is the place of; the outer ones first."""
    at = 2 if path[:1] == ("blocks",) else 0
    found: list[Path] = []
    while path[at : at + 1] == ("ops",) and len(path) > at + 1:
        at += 2
        found.append(path[:at])
        at += 2 if path[at : at + 1] == ("choose",) else 0
    return found


def is_expression(cursor: Cursor) -> bool:
    """Return whether the value at the cursor is an expression."""
    at = find_op(cursor.path)
    op = None if at is None else cursor.get(at)
    if at is None or not isinstance(op, dict) or len(cursor.path) != len(at) + 1:
        return False
    field, kinds = cursor.path[-1], find_kinds(op)
    if field == "expr":
        return True
    is_source = any(DIFFERENTIATED.get(kind) == field for kind in kinds)
    value = cursor.get(cursor.path)
    return is_source and isinstance(value, str) and is_formula(value.replace(MARK, ""))


def find_role(cursor: Cursor) -> Role | None:
    """Return what a name at the cursor must be that of, as the op says itself; None where none is wanted."""
    at = find_op(cursor.path)
    if at is None:
        match cursor.path:
            case ("outputs", *_) | ("blocks", _, "outputs", *_):
                return "value"
            case ("run", "images", "value") | ("run", "best" | "stop", "metric"):
                return "value"
            case ("models", _, "like") | ("models", _, "traits", "ties", *_):
                return "model"
            case _:
                return None
    op, field = cursor.get(at), cursor.path[len(at)]
    if not isinstance(op, dict) or not isinstance(field, str):
        return None
    kinds = find_kinds(op) or tuple(key for key in ("use",) if key in op)
    for sample in ({}, *_SAMPLES):
        if sample and kinds and kinds[0] not in sample:
            continue
        parsed = parse_op({**sample, field: op[field]} if sample else op)
        for reference in parsed.references() if parsed is not None else ():
            if MARK in reference.name:
                return reference.role
    return None


def list_names(names: Names, facets: Iterable[Facet], scope: str) -> Iterator[Suggestion]:
    """Yield the names that are wanted."""
    for name, declared in names.offer(frozenset(facets), scope):
        kind: Kind = "model" if not {"model", "average", "derived"}.isdisjoint(declared.facets) else "name"
        made = declared.op.kind if declared.op is not None else declared.facets[0] if declared.facets else ""
        yield Suggestion(label=name, kind=kind, detail=made)


def _list_given(cursor: Cursor, names: Names) -> Iterator[Suggestion]:
    """Yield the keys that are names: of what a use gives its block, and of inputs that a data set has."""
    match cursor.path:
        case (*_, "inputs" | "args" as field) if (at := find_op(cursor.path)) is not None:
            op = cursor.get(at)
            block = op.get("use") if isinstance(op, dict) else None
            space = "name" if field == "inputs" else "variable"
            for symbol, declared in names.declared.items():
                if symbol.space == space and symbol.scope == block and declared.path[2:3] == (field,):
                    yield Suggestion(label=symbol.name, kind="key", detail=f"of the block {block}", after=": ")
        case (*_, "models") if find_op(cursor.path) is not None:
            yield from list_names(names, WANTED["called"].facets, "")
        case ("data", *_, "columns"):
            yield from list_names(names, ("input",), "")
        case _:
            pass


def _list_others(path: Path, names: Names) -> Iterator[Suggestion]:
    """Yield names that are none of values or models: blocks and data sets."""
    at = find_op(path)
    match path if at is None else path[len(at) :]:
        case ("use",):
            for symbol in names.declared:
                if symbol.space == "block":
                    yield Suggestion(label=symbol.name, kind="block")
        case ("dataset", *_) | ("run", "eval", "dataset" | "data"):
            scope = "" if path[-1] == "data" else TRAIN
            for symbol in names.declared:
                if symbol.space == "data" and symbol.scope == scope:
                    yield Suggestion(label=symbol.name, kind="name")
        case _:
            pass


def _list_functions() -> Iterator[Suggestion]:
    """Yield the functions of expressions."""
    for table, family in ((CALLS, "call"), (LOSSES, "loss")):
        for name, signature in table.items():
            yield Suggestion(label=name, kind="function", detail=family, text=describe_function(name, signature))
    yield Suggestion(label=PI, kind="variable", detail="3.14159...")


def describe_function(name: str, signature: Signature) -> str:
    """Return what a function takes and means."""
    options: Mapping[str, object] = {each.name: each.default for each in signature.options}
    taken = [*signature.operands, *(["..."] if signature.repeats else [])]
    taken += [key if value is None else f"{key}={value}" for key, value in options.items()]
    return f"`{name}({', '.join(taken)})`: {signature.meaning}"

"""The order of keys: that of the language, for every part of a document whose keys are the language's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from graphspec.declare.base import Declaration
from graphspec.declare.blocks import CONTAINERS, Alternative, BlockSpec
from graphspec.declare.data import DataSource
from graphspec.declare.formulas import FormulaOp
from graphspec.declare.graph import EXPANDED, GraphSpec, find_kinds
from graphspec.declare.inputs import InputSpec, StateSpec
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import OpBase
from graphspec.declare.run import RunSpec

V = TypeVar("V")


def find_order(declared: type[Declaration], *first: str) -> tuple[str, ...]:
    """Return the keys of a part of a document in their order, some before all others."""
    keys = (field.alias or name for name, field in declared.model_fields.items())
    return tuple(dict.fromkeys((*first, *keys)))


_PARTS: Mapping[str, tuple[str, ...]] = {
    "inputs": find_order(InputSpec),
    "state": find_order(StateSpec),
    "models": find_order(ModelSpec),
    "blocks": find_order(BlockSpec),
    "choose": find_order(Alternative),
    "data": find_order(DataSource, "source", "class", "path", "split", "columns", "args"),
}
"""Sections that hold parts by name -> the keys of a part."""


def sort_document(document: Mapping[str, V]) -> dict[str, V]:
    """Return a document with its keys in order.

    The names in a section stay in the order of their author: among the ops it may have a meaning.
    """
    return {key: _sort_section(key, value) for key, value in _sort(document, find_order(GraphSpec)).items()}


def _sort_section(key: str, section: V) -> V:
    """Return a section with the keys of its parts in order."""
    match section:
        case dict() if key == "run":
            found = _sort(cast("dict[str, object]", section), find_order(RunSpec))
        case dict() if key == "ops" or key in _PARTS:
            parts = cast("dict[str, object]", section)
            found = {name: _sort_part(key, part) for name, part in parts.items()}
        case _:
            return section
    return cast("V", found)


def _sort_part(section: str, part: object) -> object:
    """Return an op, a model, ... with its keys in order."""
    if not isinstance(part, dict):
        return part
    fields = cast("dict[str, object]", part)
    if section == "ops":
        kind = next(iter((*(key for key in EXPANDED if key in fields), *find_kinds(fields))), "")
        declared = {**CONTAINERS, "expr": FormulaOp, **KINDS}.get(kind, OpBase)
        own = (key for key in find_order(declared) if key not in OpBase.model_fields)
        ordered = _sort(fields, tuple(dict.fromkeys((kind, *own, *OpBase.model_fields))))
        return {key: _sort_held(key, each) for key, each in ordered.items()}
    if section == "data" and not fields.keys() & {"source", "class"}:  # several training sets
        return {name: _sort_part(section, each) for name, each in fields.items()}
    ordered = _sort(fields, _PARTS[section])
    return {name: _sort_section(name, each) if name == "ops" else each for name, each in ordered.items()}


def _sort_held(key: str, value: object) -> object:
    """Return the ops that an op holds with their keys in order."""
    match value:
        case dict() if key == "ops":
            return _sort_section(key, cast("dict[str, object]", value))
        case list() if key == "choose":
            return [_sort_part("choose", each) for each in cast("list[object]", value)]
        case _:
            return value


def _sort(fields: Mapping[str, V], order: Sequence[str]) -> dict[str, V]:
    """Return fields with the keys of an order first; others follow as they are."""
    known = {key: fields[key] for key in order if key in fields}
    return {**known, **{key: item for key, item in fields.items() if key not in known}}

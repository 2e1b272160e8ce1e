"""Salvage: check what remains of a document when some of its fields are invalid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from pydantic import ValidationError

from graphspec.check.schema_paths import trace
from graphspec.check.validate import validate
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.source import Document, Path, Plain

_SECTIONS = ("inputs", "state", "models", "ops")
_MODEL: Plain = {"class": "unknown:Model", "optimizer": {"class": "unknown:Optimizer"}}
_OPAQUE: Mapping[str, Plain] = {"models": _MODEL, "inputs": {}, "state": {"shape": []}}
"""Placeholders for declarations that could not be read, so that references to them still resolve."""
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a document.

    Its data; the declarations (section, name) that were repaired; and ``blind``, whether whole sections are lost.
    """

    data: dict[str, Plain]
    repaired: frozenset[tuple[str, str]] = frozenset()
    blind: bool = False


def check_rest(document: Document, error: ValidationError) -> tuple[Diagnostic, ...]:
    """Return the problems that the rules find in what a validation error leaves of a document.

    Returns nothing where the validation error alone exceeds the number of problems that are reported.
    """
    if not isinstance(document.data, dict) or error.error_count() > MOST_PROBLEMS:
        return ()
    remains = Remains(data=document.data)
    for _ in range(_ROUNDS):
        remains = _repair(remains, error)
        try:
            spec = GraphSpec.read(replace(document, data=remains.data))
        except ValidationError as following:
            error = following
        else:
            broken = frozenset(name for pair in remains.repaired for name in _find_names(document.data, *pair))
            return validate(spec, broken, blind=remains.blind)
    return ()


def _repair(remains: Remains, error: ValidationError) -> Remains:
    """Remove what an error is about: first the wrong keys, then the declarations that are still wrong."""
    data, repaired, blind = remains.data, set(remains.repaired), remains.blind
    for path in _find_paths(remains.data, error):
        match path:
            case (str(section), str(name), *_) if section in _SECTIONS:
                pair = (section, name)
                data = _take_out(data, path[:2] if pair in remains.repaired else path)
                repaired.add(pair)
            case (str(section), *_):
                data = _take_out(data, path[:1] if (section, "") in remains.repaired else path)
                repaired.add((section, ""))
                blind = blind or (len(path) == 1 and section in _SECTIONS)
            case _:
                pass
    return Remains(data=_fill(data), repaired=frozenset(repaired), blind=blind)


def _find_paths(data: Plain, error: ValidationError) -> tuple[Path, ...]:
    """Return the paths of the mapping keys that the errors are about, or within whose lists they are."""
    details = error.errors(include_url=False, include_input=False)
    return tuple(dict.fromkeys(_find_key(trace(detail["loc"], GraphSpec, data).path) for detail in details))


def _find_key(path: Path) -> Path:
    """Cut a path after its first key that leads into a list, unless the error is about a layer in that list."""
    lists = [index for index, part in enumerate(path) if isinstance(part, int)]
    is_layer = path[2:3] == ("layers",) and isinstance(path[-1], int)
    return path[: lists[0]] if lists and not is_layer else path


def _take_out(data: dict[str, Plain], path: Path) -> dict[str, Plain]:
    """Return data without a key; a declaration of a model or an input is replaced, so that its name stays."""
    first, *rest = path
    key = str(first)
    value = data.get(key)
    match rest:
        case [str(name)] if key in _OPAQUE and isinstance(value, dict):
            return {**data, key: {**value, name: _OPAQUE[key]}}
        case [int(), *_] if isinstance(value, list):
            return {**data, key: _take_layer(value, tuple(rest))}
        case [_, *_] if isinstance(value, dict):
            return {**data, key: _take_out(value, tuple(rest))}
        case _:
            return {name: item for name, item in data.items() if name != key}


def _take_layer(layers: list[Plain], path: Path) -> list[Plain]:
    """Return layers with a harmless one in the place of one; its inner layers are reached through a residual."""
    first, *rest = path
    inner = layers[int(first)]
    harmless: Plain = _take_out(inner, tuple(rest)) if rest and isinstance(inner, dict) else "identity"
    return [harmless if index == first else layer for index, layer in enumerate(layers)]


def _fill(data: dict[str, Plain]) -> dict[str, Plain]:
    """Return a document with what every document has."""
    ops = data.get("ops")
    some: Plain = ops if isinstance(ops, dict) and ops else {"nothing": {"call": "unknown:fn"}}
    return {"graphspec": 1, "name": "spec", **data, "ops": some}


def _find_names(data: Mapping[str, Plain], section: str, name: str) -> Iterator[str]:
    """Yield the names that a declaration makes: its own, and an op's outputs as far as they can be read."""
    yield name
    ops = data.get("ops")
    op = ops.get(name) if section == "ops" and isinstance(ops, dict) else None
    outputs = op.get("outputs") if isinstance(op, dict) else None
    for output in outputs if isinstance(outputs, list) else [outputs]:
        if isinstance(output, str):
            yield output
        elif isinstance(output, dict):
            yield from cast("dict[str, Plain]", output)

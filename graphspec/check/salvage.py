"""Salvage: check what remains of a document when some of its fields are invalid."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from graphspec.check.schema_errors import trace
from graphspec.check.validate import validate
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.source import Document, Path, Plain
from graphspec.words import closest

_SECTIONS = ("inputs", "state", "models", "ops")
_MODEL: Plain = {"class": "unknown:Model", "optimizer": {"class": "unknown:Optimizer"}}
_OPAQUE: Mapping[str, Plain] = {"models": _MODEL, "inputs": {}, "state": {"shape": []}}
"""Placeholders for declarations that could not be read, so that references to them still resolve."""
_ROUNDS = 3


class Remains(Struct, frozen=True, kw_only=True):
    """What is left of a document.

    Its data; the declarations (section, name) that were repaired; and ``blind``, whether whole sections are lost.
    """

    data: dict[str, Plain]
    repaired: frozenset[tuple[str, str]] = frozenset()
    blind: bool = False


def check_rest(
    document: Document, error: ValidationError, broken: frozenset[str] = frozenset()
) -> tuple[Diagnostic, ...]:
    """Return the problems that the rules find in what a validation error leaves of a document.

    Nothing is held against what is ``broken``. Returns nothing where the validation error alone exceeds the number of
    problems that are reported.
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
            continue
        lost = {*broken, *(name for _, name in remains.repaired)}
        # The outputs of an op that could not be read are names too, as far as they can be read.
        ops = document.data.get("ops")
        for section, name in remains.repaired:
            op = ops.get(name) if section == "ops" and isinstance(ops, dict) else None
            outputs = op.get("outputs") if isinstance(op, dict) else None
            for output in outputs if isinstance(outputs, list) else [outputs]:
                lost |= {output} if isinstance(output, str) else {*output} if isinstance(output, dict) else set()
        return validate(spec, frozenset(lost), blind=remains.blind)
    return ()


def _repair(remains: Remains, error: ValidationError) -> Remains:
    """Remove what an error is about: first the wrong keys, then the declarations that are still wrong."""
    data, repaired, blind = remains.data, set(remains.repaired), remains.blind
    details = error.errors(include_url=False, include_input=False)
    for path in dict.fromkeys(trace(detail["loc"], GraphSpec, remains.data).path for detail in details):
        lists = [index for index, part in enumerate(path) if isinstance(part, int)]
        is_layer = path[2:3] == ("layers",) and isinstance(path[-1], int)
        # Of a list the whole is wrong, unless it is one of layers.
        wrong = path[: lists[0]] if lists and not is_layer else path
        match wrong:
            case (str(section), str(name), *_) if section in _SECTIONS:
                pair = (section, name)
                data = _take_out(data, wrong[:2] if pair in remains.repaired else wrong)
                repaired.add(pair)
            case (str(section), *_):
                data = _take_out(data, wrong[:1] if (section, "") in remains.repaired else wrong)
                repaired.add((section, ""))
                blind = blind or (
                    len(wrong) == 1 and not {section, *closest(section, _SECTIONS, 1)}.isdisjoint(_SECTIONS)
                )
            case _:
                pass
    # Every document has these.
    ops = data.get("ops")
    some: Plain = ops if isinstance(ops, dict) and ops else {"nothing": {"call": "unknown:fn"}}
    filled: dict[str, Plain] = {"graphspec": 1, "name": "spec", **data, "ops": some}
    return Remains(data=filled, repaired=frozenset(repaired), blind=blind)


def _take_out(data: dict[str, Plain], path: Path) -> dict[str, Plain]:
    """Return data without a key; what other names refer to is replaced by something harmless instead."""
    first, *rest = path
    key = str(first)
    value = data.get(key)
    match rest:
        case [str(name)] if key in _OPAQUE and isinstance(value, dict):
            return {**data, key: {**value, name: _OPAQUE[key]}}
        case [int(index), *inside] if isinstance(value, list):
            # A layer; those inside it are reached through a residual.
            inner = value[index]
            harmless: Plain = _take_out(inner, tuple(inside)) if inside and isinstance(inner, dict) else "identity"
            return {**data, key: [*value[:index], harmless, *value[index + 1 :]]}
        case [_, *_] if isinstance(value, dict):
            return {**data, key: _take_out(value, tuple(rest))}
        case _:
            return {name: item for name, item in data.items() if name != key}

"""The words of the language, from its own tables, and those that a document says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from graphspec.declare.blocks import CONTAINERS
from graphspec.declare.decays import DECAYS
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import LAYERS
from graphspec.declare.library import FUNCTIONS
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import OpBase
from graphspec.declare.ops.ema import UseSpec
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.schedules import FIELDS
from tests.properties.causality import as_list

OPS = {**KINDS, **CONTAINERS}
COMMON = OpBase.model_fields.keys()
"""Fields of every op: each is one word, whatever op it stands at."""
SECOND = ("loss", "copy", "schedule")
"""Kinds that are fields of others, too."""


def find_language() -> set[str]:
    """Return every function, layer, rule, schedule and decay, every option of these, and every field with its words."""
    words = {f"schedule: {name}" for name in FIELDS} | {f"decay: {name}" for name in DECAYS}
    words |= {f"optimizer: {name}" for name in OPTIMIZERS} | {f"layer: {name}" for name in LAYERS}
    words |= {f"layer {name}: {option.name}" for name, options in LAYERS.items() for option in options}
    for family, functions in FUNCTIONS.items():
        words |= {f"{family}: {name}" for name in functions}
        words |= {f"{family} {name}: {one.name}" for name, found in functions.items() for one in found.options}
    declared = {"document": GraphSpec, "model": ModelSpec, "ema use": UseSpec, "op": OpBase, **OPS}
    for kind, declaration in declared.items():
        own = {name: one for name, one in declaration.model_fields.items() if kind == "op" or name not in COMMON}
        for name, field in own.items():
            words |= {f"{kind} {field.alias or name}"}
            words |= {f"{kind} {name}: {word}" for word in _find_literals(field.annotation)}
    return words


def _find_literals(annotation: object) -> Iterator[str]:
    """Yield the words that a field may be."""
    for each in get_args(annotation):
        if isinstance(each, str):
            yield each
        yield from _find_literals(each)


def find_words(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a document, in the form of the language's."""
    yield from (f"document {field}" for field in document)
    yield from _find_fields("document", document)
    for model in document["models"].values():
        yield from _find_fields("model", model)
        yield from _find_layers(model.get("layers", ()))
    yield from _find_everywhere(document)


def _find_layers(layers: list) -> Iterator[str]:
    for layer in layers:
        name, options = (layer, {}) if isinstance(layer, str) else next(iter(layer.items()))
        first = next((one.name for one in LAYERS[name]), "")
        yield f"layer: {name}"
        if name in ("residual", "spectral_norm"):
            yield from _find_layers(options)
        elif isinstance(options, dict):
            yield from (f"layer {name}: {option}" for option in options)
        elif options != {}:
            yield f"layer {name}: {first}"


def _find_everywhere(value: Any) -> Iterator[str]:
    """Yield the words of ops, schedules and rules, wherever they stand."""
    if isinstance(value, list):
        for each in value:
            yield from _find_everywhere(each)
    if not isinstance(value, dict):
        return
    kinds = [kind for kind in OPS if kind in value and not isinstance(value[kind], dict)] if value else []
    for kind in [kind for kind in kinds if kind not in SECOND] or kinds:
        yield from _find_fields(kind, value)
        if kind in FUNCTIONS:
            yield f"{kind}: {value[kind]}"
            yield from (f"{kind} {value[kind]}: {option}" for option in value.get("args") or {})
    if isinstance(value.get("use"), dict):
        yield from _find_fields("ema use", value["use"])
    yield f"schedule: {value.get('schedule')}"
    yield f"decay: {value.get('kind')}"
    yield f"optimizer: {value.get('name')}"
    for each in value.values():
        yield from _find_everywhere(each)


def _find_fields(kind: str, value: Mapping[str, Any]) -> Iterator[str]:
    for field, each in value.items():
        owner = "op" if kind in OPS and field in COMMON else kind
        yield f"{owner} {field}"
        yield from (f"{owner} {field}: {one}" for one in as_list(each) if isinstance(one, str))

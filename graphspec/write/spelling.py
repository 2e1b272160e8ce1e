"""Spelling: declarations as the plain data a document holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TypeAlias, cast

from graphspec.declare.base import Declaration
from graphspec.declare.data import DataSource, TrainingSets
from graphspec.declare.durations import Duration
from graphspec.declare.functions import PerBackend
from graphspec.declare.inputs import Inputs
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import Output, ScheduleOp
from graphspec.declare.ops.base import OpBase
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.options import find_defaults
from graphspec.declare.schedules import FIELDS, CurveSpec, PartSpec, ScheduleSpec

Tree: TypeAlias = None | bool | int | float | str | list["Tree"] | dict[str, "Tree"]

ONE_OR_MORE = ("update", "gradients", "inputs", "wrt", "grad_outputs", "after", "mode", "dataset")
"""Fields of ops that take a name, or a list of them: one is written without brackets."""


class Word(str):
    """A text that is written without quotes although it begins like a number: a duration, or a moment."""

    __slots__ = ()


def spell(value: object) -> Tree:
    """Return what a document holds for a declaration, or for a value of one of its fields."""
    match value:
        case str():
            return value.replace("${", "$${")  # what looks like an interpolation in a finished spec is none
        case None | bool() | int() | float():
            return value
        case Duration():
            return spell_duration(value)
        case list() | tuple():
            return [spell(item) for item in cast("list[object]", value)]
        case dict():
            return {key: spell(item) for key, item in cast("dict[str, object]", value).items()}
        case Declaration():
            return _spell_declaration(value)
        case _:
            raise TypeError(f"no document holds a {type(value).__name__}")


def spell_duration(duration: Duration) -> Word:
    """Return a duration with all its digits: ``500 steps``, ``0.125 run``."""
    exact = duration.count
    count = str(int(exact)) if float(exact).is_integer() else format(Decimal(repr(exact)), "f")
    return Word(f"{count} {duration.unit}")


def _spell_declaration(value: Declaration) -> Tree:
    match value:
        case Inputs():
            return _spell_inputs(value)
        case PerBackend():
            return value.torch if value.torch == value.tensorflow else _spell_fields(value)
        case Output():
            return value.name if value.tap is None else {value.name: {"tap": value.tap}}
        case Layer():
            return _spell_layer(value)
        case OptimizerSpec():
            return _spell_optimizer(value)
        case CurveSpec():
            return _spell_curve(value)
        case DataSource():
            return _spell_source(value)
        case TrainingSets():
            mix = {} if value.mix is None else {"mix": spell(value.mix)}
            return {**{name: spell(each) for name, each in value.sets.items()}, **mix}
        case ModelSpec():
            fields = _spell_fields(value)
            return fields if value.like is not None else {key: fields[key] for key in fields if key != "init"}
        case OpBase():
            return _spell_op(value)
        case _:
            return _spell_fields(value)


def _spell_fields(value: Declaration) -> dict[str, Tree]:
    """Return every field that says something, in the order of their declaration."""
    return {key: spell(item) for key, _, item in _find_fields(value)}


def _find_fields(value: Declaration) -> Iterator[tuple[str, str, object]]:
    """Yield key, name and value of every field that holds more than nothing at all."""
    written: Mapping[str, object] = dict(value)
    for name, field in type(value).model_fields.items():
        item = written[name]
        if item is not None and not (_is_empty(item) and item == field.default):
            yield field.alias or name, name, item


def _is_empty(value: object) -> bool:
    return value in ((), {}, "") or (isinstance(value, Inputs) and not len(value))


def _spell_op(op: OpBase) -> Tree:
    """Return an op: what its kind has comes first, then what all ops have."""
    fields = {key: (name, item) for key, name, item in _find_fields(op)}
    common = OpBase.model_fields
    ordered = sorted(fields, key=lambda key: fields[key][0] in common)
    spelled = {
        key: _spell_names(key, fields[key][1])
        for key in ordered
        if not (key == "schedule" and isinstance(op, ScheduleOp))
    }
    return {**_spell_curve(op.curve), **spelled} if isinstance(op, ScheduleOp) else spelled


def _spell_names(key: str, value: object) -> Tree:
    spelled = spell(value)
    return spelled[0] if key in ONE_OR_MORE and isinstance(spelled, list) and len(spelled) == 1 else spelled


def _spell_inputs(inputs: Inputs) -> Tree:
    if inputs.keyword:
        return {key: spell(item) for key, item in inputs.keyword.items()}
    return spell(inputs.positional[0]) if len(inputs.positional) == 1 else spell(inputs.positional)


def _spell_layer(layer: Layer) -> Tree:
    if layer.layers:
        return {layer.kind: [_spell_layer(inner) for inner in layer.layers]}
    table = LAYERS[layer.kind]
    options = {**find_defaults(table), **layer.options}
    written = {option.name: options[option.name] for option in table if options[option.name] is not None}
    if not written:
        return layer.kind
    return {layer.kind: spell(next(iter(written.values())) if len(table) == 1 else written)}


def _spell_optimizer(optimizer: OptimizerSpec) -> Tree:
    if optimizer.epochs:
        return {Word(epoch): _spell_optimizer(each) for epoch, each in optimizer.epochs.items()}
    kind = {"name": optimizer.name} if optimizer.name is not None else {"class": spell(optimizer.class_)}
    return {**kind, **{key: spell(item) for key, item in optimizer.resolved().items()}}


def _spell_curve(curve: CurveSpec) -> dict[str, Tree]:
    """Return a schedule with the defaults of its kind."""
    written = curve.written()
    spelled: dict[str, Tree] = {"schedule": curve.schedule}
    spelled |= {name: spell(written.get(name, default)) for name, default in FIELDS[curve.schedule].items()}
    if curve.at is not None:
        spelled["at"] = {Word(key): value for key, value in curve.at.items()}
    if isinstance(curve, PartSpec) and curve.for_ is not None:
        spelled["for"] = spell(curve.for_)
    return {**spelled, "clock": curve.clock} if isinstance(curve, ScheduleSpec) else spelled


def _spell_source(source: DataSource) -> Tree:
    """Return a data source, a user's under `class`."""
    fields = _spell_fields(source)
    path = source.class_path
    return fields if path is None else {"class": path, **{key: fields[key] for key in fields if key != "source"}}

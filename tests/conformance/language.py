"""All that a step can say, and what of it a spec says: read from the declarations, so that nothing is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import InputSpec
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.library import FUNCTIONS
from graphspec.declare.models import ModelSpec, ParameterSpec, Traits
from graphspec.declare.ops import KINDS, MODES, ClipSpec, OpBase, Output
from graphspec.declare.ops.ema import UseSpec
from graphspec.declare.optimizers import OPTIMIZERS, OptimizerSpec
from graphspec.declare.options import Option
from graphspec.declare.schedules import ScheduleSpec

DECLARED: tuple[type[BaseModel], ...] = (
    *KINDS.values(), ClipSpec, UseSpec, Output, InputSpec, ModelSpec, ParameterSpec, Traits, ScheduleSpec,
)  # fmt: skip
UNITS = ("steps", "updates", "samples", "epochs", "run")


def find_all() -> set[str]:
    """Return every part of the language of a step that is built."""
    found = {
        part
        for declared in DECLARED
        for name, field in declared.model_fields.items()
        for part in parts(declared, name, field)
    }
    for family, functions in FUNCTIONS.items():
        for name, signature in functions.items():
            found |= {f"{family} {name}", *options(f"{family} {name}", signature.options)}
    for name, listed in OPTIMIZERS.items():
        found |= {f"optimizer {name}", *options(f"optimizer {name}", listed)}
    for name, listed in LAYERS.items():
        found |= {f"layer {name}", *options(f"layer {name}", listed)}
    return found | {f"mode {mode}" for mode in MODES} | {f"in {unit}" for unit in UNITS}


def parts(declared: type[BaseModel], name: str, field: FieldInfo) -> Iterator[str]:
    """Yield a field that is built, and each word that it takes."""
    if field.annotation is not type(None):
        yield title(declared, name)
        yield from (f"{title(declared, name)} = {word}" for word in words(field.annotation))


def title(declared: type[BaseModel], field: str) -> str:
    """Return what a field is called here; those of all ops are one."""
    return f"{'op' if field in OpBase.model_fields else declared.__name__}.{field}"


def words(annotation: object) -> Iterator[str]:
    """Yield the words among what a field takes."""
    if get_origin(annotation) is Literal:
        yield from (word for word in get_args(annotation) if isinstance(word, str))
        return
    for inner in get_args(annotation):
        yield from words(inner)


def options(owner: str, listed: Iterable[Option]) -> Iterator[str]:
    """Yield options, and the words that they take."""
    for option in listed:
        yield f"{owner}.{option.name}"
        yield from (f"{owner}.{option.name} = {choice}" for choice in option.choices)


def find_said(spec: GraphSpec) -> Iterator[str]:
    """Yield what a spec says of all that."""
    for held in (spec.inputs, spec.models, spec.ops):
        yield from say(held)


def say(value: object) -> Iterator[str]:
    """Yield what a part of a spec says."""
    match value:
        case OptimizerSpec():
            yield from say_options(f"optimizer {value.name}", value.options)
        case Layer():
            yield from say_options(f"layer {value.kind}", value.options)
            yield from say(value.layers)
        case BaseModel():
            yield from say_fields(value)
        case Mapping():
            yield from say(tuple(value.values()))
        case tuple() | list():
            for each in value:
                yield from say(each)
        case _:
            yield f"in {getattr(value, 'unit', '')}"


def say_fields(value: BaseModel) -> Iterator[str]:
    """Yield the fields that are written, the words that stand in them, and the function that is named."""
    for name in value.model_fields_set:
        written = getattr(value, name)
        yield title(type(value), name)
        for word in written if isinstance(written, tuple) else (written,):
            yield f"{title(type(value), name)} = {word}"
        yield from say(written)
    if isinstance(value, OpBase):
        yield from (f"mode {mode}" for mode in value.mode or ())
        yield from say_function(value)


def say_function(op: OpBase) -> Iterator[str]:
    """Yield the function of an op with its options."""
    if op.kind in FUNCTIONS:
        named = getattr(op, op.kind)
        yield from say_options(f"{op.kind} {getattr(named, 'torch', named)}", getattr(op, "args", {}))


def say_options(owner: str, written: Mapping[str, object]) -> Iterator[str]:
    """Yield what is named, with the options that are written."""
    yield owner
    for name, value in written.items():
        yield f"{owner}.{name}"
        yield f"{owner}.{name} = {value}"
        yield from say(value)

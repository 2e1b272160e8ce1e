"""Parts of the JSON Schema that follow from tables: layers, optimizers, functions and their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, assert_never, cast

from pydantic import JsonValue

from graphspec.layers import LAYERS
from graphspec.library import FUNCTIONS, Family, Signature, find_other_names
from graphspec.names import NAME_PATTERN, PATH_PATTERN
from graphspec.optimizers import OPTIMIZERS
from graphspec.options import BATCH, Option

Json: TypeAlias = dict[str, JsonValue]


def name_arguments(values: JsonValue) -> Json:
    """Return the schema of a mapping from names of arguments to such values."""
    return {"type": "object", "additionalProperties": values, "propertyNames": {"pattern": NAME_PATTERN}}


PATH: Json = {"type": "string", "pattern": PATH_PATTERN}
PER_BACKEND: Json = {
    "type": "object",
    "description": "A path for each backend.",
    "properties": {"torch": PATH, "tensorflow": PATH},
    "additionalProperties": False,
    "minProperties": 1,
}
CLASS_NAME: Json = {
    "description": "The import path of a user's class, `pkg.mod:Name`, for every backend or per backend.",
    "anyOf": [PATH, PER_BACKEND],
}
SCHEDULE: Json = {"$ref": "#/$defs/ScheduleSpec"}
OPERAND: Json = {"anyOf": [{"type": ["string", "number", "boolean"]}, SCHEDULE]}
INPUTS: Json = {
    "description": "One reference, a list (positional) or a mapping (by keyword); numbers are literals.",
    "anyOf": [OPERAND, {"type": "array", "items": OPERAND}, name_arguments(OPERAND)],
}
_TAP: Json = {
    "type": "object",
    "properties": {"tap": {"type": ["string", "integer"], "description": "The path of the inner layer."}},
    "required": ["tap"],
    "additionalProperties": False,
}
OUTPUT: Json = {
    "description": "The name of a result, or `{h: {tap: layer4}}` for what an inner layer gives.",
    "anyOf": [
        {"type": "string"},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": _TAP},
    ],
}


def describe_training_sets() -> Json:
    """Return the schema of several training sets: sources by name, and `mix` beside them."""
    number: Json = {"type": "number", "minimum": 0}
    mix: Json = {
        "description": "How often each set is drawn, against the others: a mapping, or a list in their order.",
        "anyOf": [{"type": "object", "additionalProperties": number}, {"type": "array", "items": number}],
    }
    return {
        "type": "object",
        "description": "Several training sets: they take turns batch by batch, or each batch is drawn by `mix`.",
        "properties": {"mix": mix},
        "additionalProperties": {"$ref": "#/$defs/DataSource"},
        "minProperties": 1,
    }


def describe_layer() -> Json:
    """Return the schema of one layer: its name, or a mapping with one key."""
    bare = [kind for kind, options in LAYERS.items() if kind != "residual" and not any(o.required for o in options)]
    inner: dict[str, JsonValue] = {kind: _describe_layer_options(kind, options) for kind, options in LAYERS.items()}
    mapping: Json = {"type": "object", "properties": inner, "additionalProperties": False}
    return {
        "description": "A layer: `relu`, `{linear: 64}`, `{conv2d: {out: 32, kernel: 3}}` or `{residual: [...]}`.",
        "anyOf": [{"enum": [*bare]}, {**mapping, "minProperties": 1, "maxProperties": 1}],
    }


def _describe_layer_options(kind: str, options: tuple[Option, ...]) -> Json:
    if kind == "residual":
        return {
            "description": "x + f(x), f being the inner layers.",
            "type": "array",
            "items": {"$ref": "#/$defs/Layer"},
            "minItems": 1,
        }
    full = describe_options(options)
    return {"anyOf": [describe_option(options[0]), full]} if options else full


def describe_optimizer() -> Json:
    """Return the schema of an optimizer: a name, a mapping for each rule, or a class."""
    rules: list[JsonValue] = [_describe_rule(name, options) for name, options in OPTIMIZERS.items()]
    other: Json = {
        "type": "object",
        "description": "A user's optimizer class with its keyword arguments.",
        "properties": {"class": {"$ref": "#/$defs/ClassName"}},
        "propertyNames": {"pattern": NAME_PATTERN},
        "required": ["class"],
        "not": {"required": ["name"]},
    }
    one: list[JsonValue] = [{"enum": list(OPTIMIZERS)}, *rules, other]
    phases: Json = {
        "type": "object",
        "description": "One optimizer after another, each from its epoch on: `{1: adam, 10: {name: sgd, lr: 1e-3}}`.",
        "patternProperties": {"^[1-9][0-9]*$": {"$ref": "#/$defs/OptimizerSpec"}},
        "required": ["1"],
        "additionalProperties": False,
    }
    return {
        "description": "An optimizer: `adam`, `{name: adam, lr: 2e-4}` or `{class: pkg.mod:Name}`.",
        "anyOf": [*one, phases],
    }


def _describe_rule(name: str, options: tuple[Option, ...]) -> Json:
    named: dict[str, JsonValue] = {"name": {"const": name, "description": f"The rule `{name}`."}}
    settings: dict[str, JsonValue] = {option.name: _with_schedule(option) for option in options}
    return {"type": "object", "properties": named | settings, "required": ["name"], "additionalProperties": False}


def _with_schedule(option: Option) -> Json:
    schema = describe_option(option)
    if option.kind == "betas":
        return {**schema, "items": {"anyOf": [schema["items"], SCHEDULE]}}
    if option.kind != "number":
        return schema
    remarks = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    return {"anyOf": [schema, SCHEDULE], **remarks}


def describe_options(options: Iterable[Option], *, scheduled: bool = False) -> Json:
    """Return the schema of a mapping of options; where scheduled, each number may be a schedule."""
    table = tuple(options)
    describe = _with_schedule if scheduled else describe_option
    properties: dict[str, JsonValue] = {option.name: describe(option) for option in table}
    required: list[JsonValue] = [option.name for option in table if option.required]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def describe_option(option: Option) -> Json:
    """Return the schema of an option's value."""
    schema: Json = {**_describe_kind(option), "description": f"{option.meaning[:1].upper()}{option.meaning[1:]}."}
    match option.default:
        case None:
            return schema
        case tuple():
            return {**schema, "default": [*option.default]}
        case _:
            return {**schema, "default": option.default}


def _describe_kind(option: Option) -> Json:
    whole: Json = {"type": "integer", **_describe_range(option)}
    many: Json = {"type": "array", "items": whole, "minItems": 1}
    match option.kind:
        case "int" | "index":
            return whole
        case "number":
            return {"type": "number", **_describe_range(option)}
        case "bool":
            return {"type": "boolean"}
        case "auto":
            return {"enum": ["auto", True, False]}
        case "choice":
            return {"enum": [*option.choices]}
        case "betas":
            share: Json = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
            return {"type": "array", "items": share, "minItems": 2, "maxItems": 2}
        case "pair":
            return {"anyOf": [whole, {**many, "minItems": 2, "maxItems": 2}]}
        case "sizes" | "axes":
            return {"anyOf": [whole, many]}
        case "shape":
            return {"anyOf": [whole, {**many, "prefixItems": [{"anyOf": [whole, {"const": BATCH}]}]}]}
        case _:
            assert_never(option.kind)


def _describe_range(option: Option) -> Json:
    limits: Mapping[str, float | None] = {
        "minimum": option.minimum,
        "maximum": option.maximum,
        "exclusiveMinimum": option.above,
        "exclusiveMaximum": option.below,
    }
    return {name: int(limit) if limit.is_integer() else limit for name, limit in limits.items() if limit is not None}


def describe_function(family: Family) -> Json:
    """Return the schema of a function's name: one of the library, a path, or a path per backend."""
    known: list[JsonValue] = [
        {"const": name, "description": signature.meaning} for name, signature in FUNCTIONS[family].items()
    ]
    return {"anyOf": known if family == "random" else [*known, PATH, PER_BACKEND]}


def describe_uses(family: Family) -> list[JsonValue]:
    """Return what follows from each name of the library: how many inputs and which arguments an op has."""
    return [_describe_use(family, name, signature) for name, signature in FUNCTIONS[family].items()]


def _describe_use(family: Family, name: str, signature: Signature) -> Json:
    options = describe_options(signature.options, scheduled=family != "metric")
    if family in ("call", "loss"):
        known = cast("dict[str, Json]", options["properties"])
        for other, name in find_other_names(signature).items():
            known[other] = {**known[name], "description": f"Another name of `{name}`."}
    properties: dict[str, JsonValue] = {"args": options}
    if family in ("loss", "call", "metric"):
        properties["inputs"] = _describe_operands(signature)
    required: list[JsonValue] = ["args"] if any(option.required for option in signature.options) else []
    then: Json = {"properties": properties, **({"required": required} if required else {})}
    return {"if": {"properties": {family: {"const": name}}, "required": [family]}, "then": then}


def _describe_operands(signature: Signature) -> Json:
    """Return the limits on a list of inputs; anything else than a list is left to the general schema."""
    most: Json = {} if signature.most is None else {"maxItems": signature.most}
    return {"description": ", ".join(signature.operands), "minItems": signature.fewest, **most}

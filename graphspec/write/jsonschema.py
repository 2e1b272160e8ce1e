"""The JSON Schema of a spec, for editors: made from the declarations and the tables of the language.

``python -m graphspec.write.jsonschema schemas`` writes ``schemas/graphspec.schema.json``. The schema is a little
stricter than `load`: it does not know an empty value, which `load` reads as "not written".
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias, assert_never, cast

from pydantic import JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from graphspec.declare.base import Declaration
from graphspec.declare.blocks import CONTAINERS
from graphspec.declare.data import SOURCE_MEANINGS
from graphspec.declare.equations import EQUATION_PATTERN
from graphspec.declare.fields import NAME_PATTERN, OP_PATTERN, PATH_PATTERN
from graphspec.declare.formulas import FormulaOp
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import HOLDING, LAYER_MEANINGS, LAYERS
from graphspec.declare.library import FUNCTIONS, Family, find_other_names
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import BATCH, Option
from graphspec.declare.parameters import KINDS
from graphspec.declare.precision import OTHER_NAMES, TYPE_NAMES
from graphspec.declare.schedules import ScheduleSpec
from graphspec.declare.subscripts import SUBSCRIPT_PATTERN

Json: TypeAlias = dict[str, JsonValue]


def name_arguments(values: JsonValue) -> Json:
    """Return the schema of a mapping from names of arguments to such values."""
    return {"type": "object", "additionalProperties": values, "propertyNames": {"pattern": NAME_PATTERN}}


PATH: Json = {"type": "string", "pattern": PATH_PATTERN}
PER_BACKEND: Json = {
    "type": "object",
    "description": "A path for each backend.",
    "properties": {
        "torch": {**PATH, "description": "The path for PyTorch."},
        "tensorflow": {**PATH, "description": "The path for TensorFlow."},
    },
    "additionalProperties": False,
    "minProperties": 1,
}
CLASS_NAME: Json = {
    "description": "The import path of a user's class, `pkg.mod:Name`, for every backend or per backend.",
    "anyOf": [PATH, PER_BACKEND],
}
_VARIABLE: Json = {"$ref": "#/$defs/Variable"}
SCHEDULE: Json = {"$ref": "#/$defs/ScheduleSpec"}
OPERAND: Json = {"anyOf": [{"type": ["string", "number", "boolean"]}, SCHEDULE]}
INPUTS: Json = {
    "description": "One reference, a list (positional) or a mapping (by keyword); numbers are literals.",
    "anyOf": [OPERAND, {"type": "array", "items": OPERAND}, name_arguments(OPERAND)],
}
USE_INPUTS: Json = {
    "description": "One reference, a list in the order of the block's inputs, or a mapping by their names.",
    "anyOf": [
        OPERAND,
        {"type": "array", "items": OPERAND},
        {"type": "object", "additionalProperties": OPERAND},
    ],
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
    """Return the schema of several training sets: sources by name, and `mix`."""
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
    several: Json = {"type": "array", "items": {"$ref": "#/$defs/Layer"}, "minItems": 1}
    inner: dict[str, JsonValue] = {}
    for kind, options in LAYERS.items():
        full = describe_options(options)
        # Editors show the description of the alternative that is written.
        said = f"{_say(LAYER_MEANINGS[kind])} A value alone is `{options[0].name}`." if options else ""
        inner[kind] = {"anyOf": [{**describe_option(options[0]), "description": said}, full]} if options else full
    inner |= {"residual": several, "spectral_norm": {**several, "maxItems": 1}}
    inner = {kind: {**cast("Json", each), "description": _say(LAYER_MEANINGS[kind])} for kind, each in inner.items()}
    bare = [kind for kind, options in LAYERS.items() if kind not in HOLDING and not any(o.required for o in options)]
    mapping: Json = {"type": "object", "properties": inner, "additionalProperties": False}
    return {
        "description": "A layer: `relu`, `{linear: 64}`, `{conv2d: {out: 32, kernel: 3}}` or `{residual: [...]}`.",
        "anyOf": [
            *({"const": kind, "description": _say(LAYER_MEANINGS[kind])} for kind in bare),
            _VARIABLE,
            {**mapping, "minProperties": 1, "maxProperties": 1},
        ],
    }


def describe_optimizer() -> Json:
    """Return the schema of an optimizer: a name, a mapping for each rule, or a class."""
    rules: list[JsonValue] = []
    for name, options in OPTIMIZERS.items():
        named: dict[str, JsonValue] = {"name": {"const": name, "description": f"The rule `{name}`."}}
        named |= {option.name: _with_schedule(option) for option in options}
        rules.append({"type": "object", "properties": named, "required": ["name"], "additionalProperties": False})
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
    schema: Json = {**_describe_kind(option), "description": _say(option.meaning)}
    match option.default:
        case None:
            return schema
        case tuple():
            return {**schema, "default": [*option.default]}
        case _:
            return {**schema, "default": option.default}


def _say(meaning: str) -> str:
    """Return a meaning as a sentence."""
    return f"{meaning[:1].upper()}{meaning[1:]}."


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
        case "subscript":
            return {"anyOf": [whole, {"type": "string", "pattern": SUBSCRIPT_PATTERN}]}
        case "equation":
            return {"type": "string", "pattern": EQUATION_PATTERN}
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
    uses: list[JsonValue] = []
    for name, signature in FUNCTIONS[family].items():
        options = describe_options(signature.options, scheduled=family != "metric")
        if family in ("call", "loss"):
            known = cast("dict[str, Json]", options["properties"])
            for other, own in find_other_names(signature).items():
                known[other] = {**known[own], "description": f"Another name of `{own}`."}
        described = f"The options of `{name}`." if signature.options else f"`{name}` takes no options."
        properties: dict[str, JsonValue] = {"args": {**options, "description": described}}
        if family in ("loss", "call", "metric"):
            # Limits on a list of inputs; anything else than a list is left to the general schema.
            most: Json = {} if signature.most is None else {"maxItems": signature.most}
            operands = ", ".join(signature.operands)
            properties["inputs"] = {"description": operands, "minItems": signature.fewest, **most}
        required: list[JsonValue] = ["args"] if any(option.required for option in signature.options) else []
        then: Json = {"properties": properties, **({"required": required} if required else {})}
        uses.append({"if": {"properties": {family: {"const": name}}, "required": [family]}, "then": then})
    return uses


FILE = "graphspec.schema.json"

_DEFINITIONS: Mapping[str, Json] = {
    "Variable": {"type": "string", "pattern": r"\$\{", "description": "The value of a variable: `${name}`."},
    "ClassName": CLASS_NAME,
    "Inputs": INPUTS,
    "UseInputs": USE_INPUTS,
    "Output": OUTPUT,
    "Layer": describe_layer(),
    "OptimizerSpec": describe_optimizer(),
    "TrainingSets": describe_training_sets(),
}
"""Definitions that validators of the declarations make of other forms, so that pydantic does not know them."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "ModelSpec": ("class", "layers", "parameter", "like"),
    "UpdateOp": ("loss", "gradients"),
    "AdaptOp": ("loss", "gradients"),
    "EmaOp": ("decay", "half_life", "tau", "schedule_free"),
    "ConstraintSpec": KINDS,
    "ClipSpec": ("norm", "value", "agc"),
    "RandomOp": ("shape", "like"),
    "DataSource": ("source", "class"),
}
"""Fields of which exactly one is written."""

_WORDS = ("ConstraintSpec", "RegularizerSpec")
"""Declarations in place of which the path of a function may be written."""

_SHORT: Mapping[str, tuple[Json, ...]] = {
    "ConstraintSpec": ({"enum": ["non_negative", "unit_norm", "max_norm"]}, PATH),
    "RegularizerSpec": (PATH,),
    "LossScaleSpec": ({"enum": ["none", "dynamic", "fixed"]}, {"type": "number", "exclusiveMinimum": 0}),
    "PrecisionSpec": ({"enum": [*TYPE_NAMES]},),
    "CompressSpec": ({"enum": ["none", "fp16", "bf16", "powersgd", "threshold", "sign"]},),
}
"""Short forms that a declaration accepts in place of a mapping."""

_FAMILIES: Mapping[str, Family] = {
    "LossOp": "loss",
    "CallOp": "call",
    "MetricOp": "metric",
    "TransformOp": "transform",
    "RandomOp": "random",
}
_SCALARS = ("integer", "number", "boolean")
_REMARKS = ("description", "default")


class _Described(GenerateJsonSchema):
    """Gives every field of a declaration the docstring below it as its description.

    Pydantic can do so too, but when a class is made: `use_attribute_docstrings` took a quarter of the time of `check`.
    """

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        """Return the schema of one declaration."""
        made, kind = super().model_schema(schema), cast("type[Declaration]", schema["cls"])
        said: dict[str, str] = {}
        for owner in (each for each in reversed(kind.__mro__) if issubclass(each, Declaration)):
            (defined,) = ast.parse(inspect.getsource(owner)).body
            for field, below in pairwise(cast("ast.ClassDef", defined).body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        said[name] = inspect.cleandoc(text)
                    case _:
                        pass
        for name, field in kind.model_fields.items():
            place = made["properties"].get(field.alias or name)
            if place is not None and name in said and field.description is None:
                place["description"] = said[name]
        if "description" in made:  # the docstring of the class, whose example is Python
            made["description"] = made["description"].partition(">>> ")[0].rstrip()
        return made


def build_schema() -> Json:
    """Return the JSON Schema (draft 2020-12) of a spec."""
    schema = _read(GraphSpec.model_json_schema(schema_generator=_Described))
    definitions = cast("dict[str, Json]", schema.pop("$defs"))
    schedule = _read(ScheduleSpec.model_json_schema(schema_generator=_Described))
    definitions |= {**cast("dict[str, Json]", schedule.pop("$defs")), "ScheduleSpec": schedule}
    cast("dict[str, Json]", schedule["properties"])["clock"].pop("default")  # it depends on the place
    # A schedule op has what its curve is made of in place of the curve.
    op = definitions["ScheduleOp"]
    common, curve = (cast("dict[str, JsonValue]", each["properties"]) for each in (op, schedule))
    kept = {name: item for name, item in common.items() if name not in ("schedule", "every", "start", "until")}
    definitions["ScheduleOp"] = {**op, "properties": {**curve, **kept}, "required": ["schedule"]}
    expanded = (*CONTAINERS.values(), FormulaOp)
    for each in expanded:  # they become ops: a finished spec has none
        schema_of = _read(each.model_json_schema(schema_generator=_Described))
        others = cast("dict[str, Json]", schema_of.pop("$defs", {}))
        definitions = {**others, **definitions, each.__name__: schema_of}
    definitions.pop("FunctionName")  # written out with the names of each family
    for each in ("CallOp", "LossOp"):
        cast("Json", definitions[each]["properties"]).pop("expr")
    whole = {name: _finish(name, item) for name, item in definitions.items()}
    root = _each(_clean, schema)
    properties = cast("dict[str, Json]", root["properties"])
    for section in ("inputs", "models", "ops", "data"):
        has_dots = section in ("inputs", "ops")
        properties[section]["propertyNames"] = {"pattern": OP_PATTERN if has_dots else NAME_PATTERN}
    kinds = cast("Json", properties["ops"]["additionalProperties"])["oneOf"]
    uses: list[JsonValue] = [{"$ref": f"#/$defs/{each.__name__}"} for each in expanded]
    some: JsonValue = {"anyOf": [*cast("list[JsonValue]", kinds), *uses]}
    ops: Json = {**properties["ops"], "additionalProperties": some, "minProperties": 1}
    properties["ops"] = ops
    block = cast("dict[str, JsonValue]", whole["BlockSpec"]["properties"])
    block["ops"] = {**ops, "description": "Its ops. They name its inputs, each other, and models."}
    for holder in ("RepeatOp", "Alternative", "SometimesOp"):
        held = cast("dict[str, Json]", whole[holder]["properties"])
        held["ops"] = {**ops, "description": held["ops"]["description"]}
    ordered: dict[str, JsonValue] = {name: whole[name] for name in sorted(whole)}
    head: Json = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Stepgraph graph spec"}
    return {**head, **_each(_accept_variables, root), "$defs": {**ordered, "Variable": {**_DEFINITIONS["Variable"]}}}


def write_schema(folder: Path) -> Path:
    """Write the schema into a folder and return its path; the same declarations always give the same bytes."""
    path = folder / FILE
    path.write_text(json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return path


def _read(schema: Mapping[str, object]) -> Json:
    return cast("Json", schema)


def _finish(name: str, definition: Json) -> Json:
    """Return a definition with what pydantic cannot know of it."""
    cleaned = _each(_clean, dict(_DEFINITIONS.get(name, definition)))
    properties = cast("dict[str, Json]", cleaned.get("properties", {}))
    if name in _FAMILIES:
        family = _FAMILIES[name]
        properties[family] = {**describe_function(family), "description": properties[family]["description"]}
        cleaned["allOf"] = describe_uses(family)
    if name == "ModelSpec":
        properties["layers"]["minItems"] = 1
    if name == "DataSource":
        sources: list[JsonValue] = [{"const": name, "description": each} for name, each in SOURCE_MEANINGS.items()]
        known: list[JsonValue] = [*sources, _VARIABLE, {"type": "string", "pattern": "^class:"}]
        properties["source"] = {"anyOf": known, "description": properties["source"]["description"]}
        properties["class"] = {**PATH, "description": "The import path of a user's source, `pkg.mod:Name`."}
        cleaned["required"] = ["batch"]
    if name in _CHOICES:
        cleaned["oneOf"] = [{"required": [field]} for field in _CHOICES[name]]
    if name == "LossScaleSpec":
        for other, own in OTHER_NAMES.items():
            properties[other] = {**properties[own], "description": f"Another name of `{own}`."}
    if name in _WORDS:
        path: Json = {"anyOf": [PATH, PER_BACKEND], "description": properties["function"]["description"]}
        properties["function"] = path
    if name in _SHORT:
        short: Json = {"description": cleaned.pop("description"), "anyOf": [*_SHORT[name], cleaned]}
        cleaned = short
    return _each(_accept_variables, cleaned)


def _clean(node: Json) -> Json:
    """Drop titles, empty defaults, unbuilt fields, and nothing as an alternative; name arguments by names only."""
    kept = {key: value for key, value in node.items() if key != "title"}
    if "patternProperties" in kept and "additionalProperties" not in kept:
        values = cast("Json", kept.pop("patternProperties")).values()
        kept |= name_arguments(*(each or True for each in values))
    if kept.get("default", 0) is None or isinstance(kept.get("default"), dict):
        del kept["default"]
    if isinstance(kept.get("properties"), dict):
        properties = cast("dict[str, Json]", kept["properties"])
        kept["properties"] = {name: item for name, item in properties.items() if item.get("type") != "null"}
    if isinstance(kept.get("anyOf"), list):
        return _merge([item for item in cast("list[Json]", kept["anyOf"]) if item.get("type") != "null"], kept)
    return kept


def _merge(branches: Iterable[Json], node: Json) -> Json:
    """Return a node with these alternatives, those of alternatives among them, without a level where there is one."""
    remarks = {key: node[key] for key in _REMARKS if key in node}
    chosen = list(branches)
    if len(chosen) == 1:
        return {**chosen[0], **remarks}
    flat: list[JsonValue] = []
    for branch in chosen:
        inner = cast("list[Json]", branch["anyOf"]) if branch.keys() == {"anyOf"} else [branch]
        flat.extend(item for item in inner if item not in flat)
    return {"anyOf": flat, **remarks}


def _accept_variables(node: Json) -> Json:
    """Accept a variable in place of every number, boolean and choice."""
    if isinstance(node.get("anyOf"), list):
        return _merge(cast("list[Json]", node["anyOf"]), node) if node.keys() <= {"anyOf", *_REMARKS} else node
    is_scalar = node.get("type") in _SCALARS or "enum" in node
    if not is_scalar or "const" in node:
        return node
    value = {key: item for key, item in node.items() if key not in _REMARKS}
    return _merge([value, _VARIABLE], node)


def _each(change: Callable[[Json], Json], node: Json) -> Json:
    """Return a schema with every schema in it changed, the innermost first; conditions stay as they are."""
    inner: Json = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            inner[key] = {name: _each(change, item) for name, item in cast("dict[str, Json]", value).items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            inner[key] = [_each(change, item) for item in cast("list[Json]", value)]
        elif key in ("items", "additionalProperties", "then") and isinstance(value, dict):
            inner[key] = _each(change, value)
        else:
            inner[key] = value
    return change(inner)


if __name__ == "__main__":
    print(write_schema(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))

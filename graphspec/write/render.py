"""A spec as a document again: plain data, or the text of it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from graphspec.analysis.derived import find_derived
from graphspec.analysis.evaluation import find_goal, find_role
from graphspec.analysis.modes import find_reaches
from graphspec.analysis.scope import find_expression
from graphspec.analysis.signatures import find_options
from graphspec.declare.base import Declaration
from graphspec.declare.data import DataSource, TrainingSets
from graphspec.declare.decays import DecaySpec
from graphspec.declare.durations import Duration, Start
from graphspec.declare.formulas import IN_CALLS, LOSS, FormulaOp
from graphspec.declare.functions import PerBackend
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import Inputs
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.models import ModelSpec
from graphspec.declare.ops import (
    MODES,
    CallOp,
    ClipSpec,
    EmaOp,
    ForwardOp,
    LossOp,
    MetricOp,
    Op,
    Output,
    RandomOp,
    ScheduleOp,
    TransformOp,
    UpdateOp,
)
from graphspec.declare.ops.base import OpBase
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.options import find_defaults
from graphspec.declare.schedules import FIELDS, CurveSpec, PartSpec, ScheduleSpec
from graphspec.read.builder import Plain
from graphspec.write.formula import Called, write_formula
from graphspec.write.layout import Tree, Word, lay_out

ONE_OR_MORE = ("update", "gradients", "inputs", "wrt", "grad_outputs", "after", "mode", "dataset")
"""Fields of ops that take a name, or a list of them: one is written without brackets."""


def spell(value: object) -> Tree:
    """Return what a document holds for a declaration, or for a value of one of its fields."""
    match value:
        case str():
            return value.replace("${", "$${")  # what looks like an interpolation in a finished spec is none
        case None | bool() | int() | float():
            return value
        case Start(before="copy"):
            return {"at": spell_duration(value), "before": value.before}
        case Duration():
            return spell_duration(value)
        case list() | tuple():
            return [spell(item) for item in cast("list[object]", value)]
        case dict():
            return {key: spell(item) for key, item in cast("dict[str, object]", value).items()}
        case Inputs():
            positional = spell(value.positional[0]) if len(value.positional) == 1 else spell(value.positional)
            return {key: spell(item) for key, item in value.keyword.items()} if value.keyword else positional
        case PerBackend() if value.torch == value.tensorflow:
            return value.torch
        case Output():
            return value.name if value.tap is None else {value.name: {"tap": value.tap}}
        case Layer():
            return _spell_layer(value)
        case OptimizerSpec():
            return _spell_optimizer(value)
        case CurveSpec():
            return _spell_curve(value)
        case DecaySpec():
            return {"kind": value.kind, **{name: spell(each) for name, each in value.resolved.items()}}
        case DataSource():
            path = {} if value.class_path is None else {"class": value.class_path}
            return {**path, **{key: item for key, item in _spell_fields(value).items() if key != "source" or not path}}
        case TrainingSets():
            mix = {} if value.mix is None else {"mix": spell(value.mix)}
            return {**{name: spell(each) for name, each in value.sets.items()}, **mix}
        case ModelSpec():
            fields = _spell_fields(value)
            return fields if value.like is not None else {key: fields[key] for key in fields if key != "init"}
        case GraphSpec():
            return {**_spell_fields(value), "ops": _spell_ops(value.ops)}
        case OpBase():
            # What its kind has comes first, then what all ops have.
            fields = _spell_fields(value)
            ordered = sorted(fields, key=lambda key: key in OpBase.model_fields)
            spelled = {key: fields[key] for key in ordered if key != "schedule"}
            return {**_spell_curve(value.curve), **spelled} if isinstance(value, ScheduleOp) else spelled
        case Declaration():
            return _spell_fields(value)
        case _:
            raise TypeError(f"no document holds a {type(value).__name__}")


def _spell_ops(ops: Mapping[str, Op]) -> dict[str, Tree]:
    """Return ops, those of an expression as the expression."""
    held = {name: op for name, op in ops.items() if isinstance(op, CallOp | LossOp) and op.expr is not None}
    inside = {LOSS.format(name) for name in ops} & held.keys()
    spelled: dict[str, Tree] = {}
    for name, op in ops.items():
        tree = spell(op)
        assert isinstance(tree, dict)
        if name in held:
            if held[name].expr == name and name not in inside:
                fields = {key: each for key, each in tree.items() if key in FormulaOp.model_fields}
                spelled[name] = {
                    "expr": spell_formula(name, held),
                    **{key: fields[key] for key in fields if key != "expr"},
                }
            continue
        for key in ("loss", "gradient"):
            root = tree.get(key)
            if isinstance(root, str) and root in held and root == LOSS.format(name):
                tree[key] = spell_formula(root, held)
        spelled[name] = tree
    return spelled


def spell_formula(root: str, held: Mapping[str, Op]) -> Tree:
    """Return the expression whose last op has a name."""

    def read(name: str) -> Called:
        """Return a call with the parts that it reads."""
        op = held[name]
        assert isinstance(op, CallOp | LossOp)
        named = op.call if isinstance(op, CallOp) else op.loss
        operands = tuple(
            read(each) if isinstance(each, str) and find_expression(held.get(each)) == op.expr else each
            for each in op.inputs.positional
            if not isinstance(each, ScheduleSpec)
        )
        fields = {key: getattr(op, key) for key in IN_CALLS if key in op.model_fields_set}
        return Called(function=named.given[0], operands=operands, options={**op.args, **fields})

    return spell(write_formula(read(root)))


def spell_duration(duration: Duration) -> Word:
    """Return a duration with all its digits: ``500 steps``, ``0.125 run``."""
    exact = duration.count
    count = str(int(exact)) if float(exact).is_integer() else format(Decimal(repr(exact)), "f")
    return Word(f"{count} {duration.unit}")


def _spell_fields(value: Declaration) -> dict[str, Tree]:
    """Return every field that holds more than nothing at all, in the order of their declaration."""
    written: Mapping[str, object] = dict(value)
    spelled: dict[str, Tree] = {}
    for name, field in type(value).model_fields.items():
        item, key = written[name], field.alias or name
        is_empty = item in ((), {}, "") or (isinstance(item, Inputs) and not len(item))
        if item is None or (is_empty and item == field.default):
            continue
        tree = spell(item)
        is_one = isinstance(value, OpBase) and key in ONE_OR_MORE and isinstance(tree, list) and len(tree) == 1
        spelled[key] = tree[0] if is_one and isinstance(tree, list) else tree
    return spelled


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


def resolve(spec: GraphSpec) -> GraphSpec:
    """Return a spec that says what this one leaves to defaults that follow from its other parts.

    `vars` and `compat` are gone: they say nothing more.
    """
    derived = find_derived(spec)
    updated = frozenset(name for op in spec.ops.values() if isinstance(op, UpdateOp) for name in op.update)
    reaches = find_reaches(spec)
    ops: dict[str, Op] = {}
    for name, op in spec.ops.items():
        found: dict[str, object] = {}
        if op.mode is None and op.default_modes != MODES:
            found["mode"] = op.default_modes
        match op:
            case CallOp(expr=str()) | LossOp(expr=str()):
                pass  # an expression stays as it is written
            case CallOp() | LossOp() | MetricOp() | TransformOp() | RandomOp():
                # Arguments of a function of the library, in the order of its table.
                defaults = {key: value for key, value in find_defaults(find_options(op)).items() if value is not None}
                found |= {"args": {**defaults, **op.args}} if defaults else {}
            case ForwardOp(train=None):
                # An op that never runs in train mode does not train by default, regardless of who owns the model.
                found["train"] = derived.get(op.forward, op.forward) in updated and "train" in reaches[name].modes
            case EmaOp(schedule_free=None):
                found |= {"interval_correction": op.correction, "init": op.beginning}
            case UpdateOp(clip=ClipSpec(eps=None) as clip):
                found["clip"] = clip.model_copy(update={"eps": clip.epsilon})
            case _:
                pass
        ops[name] = op.model_copy(update=found)
    data: dict[str, DataSource | TrainingSets] = {}
    for role, source in spec.data.items():
        sets = source.sets if isinstance(source, TrainingSets) else {"": source}
        whole = {name: each.model_copy(update={"drop_last": each.drops_last(role)}) for name, each in sets.items()}
        data[role] = source.model_copy(update={"sets": whole}) if isinstance(source, TrainingSets) else whole[""]
    run, settings = spec.run, dict[str, object]()
    if run.eval is not None:
        settings["eval"] = run.eval.model_copy(update={"data": find_role(spec)})
    for key, watch in (("best", run.best), ("stop", run.stop)):
        if watch is not None:
            settings[key] = watch.model_copy(update={"mode": find_goal(spec, watch)})
    run = run.model_copy(update=settings)
    return spec.model_copy(update={"vars": {}, "compat": None, "ops": ops, "data": data, "run": run})


def to_plain(spec: GraphSpec) -> dict[str, Plain]:
    """Return the document that declares a spec, as plain data: what JSON holds, and numbers that are not finite.

    Defaults are written out where they can be without compiling, `vars` and `compat` are not; keys come in the order in
    which they are declared, and ops, models and inputs in that of the spec.
    """
    return cast("dict[str, Plain]", spell(resolve(spec)))


def render(spec: GraphSpec) -> str:
    """Return a spec as a YAML document; loading and dumping it again gives the same bytes.

    >>> from graphspec import dump, load
    >>> text = dump(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> dump(load(text)) == text
    True
    """
    return lay_out(to_plain(spec))

"""A spec as a document again: plain data, or the text of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from graphspec.analysis.evaluation import find_goal, find_role
from graphspec.analysis.modes import Reach, find_reaches
from graphspec.analysis.signatures import find_options
from graphspec.declare.data import DataSource, TrainingSets
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import (
    MODES,
    CallOp,
    ClipSpec,
    EmaOp,
    ForwardOp,
    LossOp,
    MetricOp,
    Op,
    RandomOp,
    TransformOp,
    UpdateOp,
)
from graphspec.declare.options import find_defaults
from graphspec.declare.run import RunSpec
from graphspec.read.builder import Plain
from graphspec.write.layout import lay_out
from graphspec.write.spelling import spell


def resolve(spec: GraphSpec) -> GraphSpec:
    """Return a spec that says what this one leaves to defaults that follow from its other parts.

    `vars` and `compat` are gone: they say nothing more.
    """
    context = _Context(
        updated=frozenset(name for op in spec.ops.values() if isinstance(op, UpdateOp) for name in op.update),
        reaches=find_reaches(spec.ops),
    )
    ops = {name: op.model_copy(update=_find_defaults(name, op, context)) for name, op in spec.ops.items()}
    data = {name: _resolve_source(name, source) for name, source in spec.data.items()}
    return spec.model_copy(update={"vars": {}, "compat": None, "ops": ops, "data": data, "run": _resolve_run(spec)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What the defaults of an op depend on: the models that some update writes, and where every op runs."""

    updated: frozenset[str]
    reaches: Mapping[str, Reach]


def _find_defaults(name: str, op: Op, context: _Context) -> dict[str, object]:
    """Return the fields of an op that it leaves out, and what follows for them."""
    found: dict[str, object] = _find_args(op)
    if op.mode is None and op.default_modes != MODES:
        found["mode"] = op.default_modes
    match op:
        case ForwardOp(train=None):
            # An op that never runs in train mode does not train by default, regardless of who owns the model.
            found["train"] = op.forward in context.updated and "train" in context.reaches[name].modes
        case EmaOp():
            found["interval_correction"] = op.correction
        case UpdateOp(clip=ClipSpec(eps=None) as clip):
            found["clip"] = clip.model_copy(update={"eps": clip.epsilon})
        case _:
            pass
    return found


def _find_args(op: Op) -> dict[str, object]:
    """Return the arguments of a function of the library with their defaults, in the order of its table."""
    match op:
        case CallOp() | LossOp() | MetricOp() | TransformOp() | RandomOp():
            defaults = {key: value for key, value in find_defaults(find_options(op)).items() if value is not None}
            return {"args": {**defaults, **op.args}} if defaults else {}
        case _:
            return {}


def _resolve_source(role: str, source: DataSource | TrainingSets) -> DataSource | TrainingSets:
    if isinstance(source, TrainingSets):
        sets = {
            name: each.model_copy(update={"drop_last": each.drops_last(role)}) for name, each in source.sets.items()
        }
        return source.model_copy(update={"sets": sets})
    return source.model_copy(update={"drop_last": source.drops_last(role)})


def _resolve_run(spec: GraphSpec) -> RunSpec:
    run = spec.run
    found: dict[str, object] = {}
    if run.eval is not None:
        found["eval"] = run.eval.model_copy(update={"data": find_role(spec)})
    if run.best is not None:
        found["best"] = run.best.model_copy(update={"mode": find_goal(spec, run.best)})
    if run.stop is not None:
        found["stop"] = run.stop.model_copy(update={"mode": find_goal(spec, run.stop)})
    return run.model_copy(update=found)


def to_plain(spec: GraphSpec) -> dict[str, Plain]:
    """Return the document that declares a spec, as plain data: what JSON holds, and numbers that are not finite.

    Defaults are written out where they can be without compiling, `vars` and `compat` are not; keys come in the order in
    which they are declared, and ops, models and inputs in that of the spec.
    """
    return cast("dict[str, Plain]", spell(resolve(spec)))


def render(spec: GraphSpec) -> str:
    """Return the document that declares a spec as YAML; reading and rendering it again gives the same bytes.

    >>> from graphspec import load
    >>> text = render(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> render(load(text)) == text
    True
    """
    return lay_out(to_plain(spec))


__all__ = ["render", "to_plain"]

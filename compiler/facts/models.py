"""What is known about each model before anything is lowered: structure, traits, owners, optimizers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from compiler.ir.cell import Cell, find_parameter_cells, parameters_of
from compiler.types.dimension import TensorType
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import BUFFERED, COUPLED, Layer, draws
from graphspec.declare.models import BufferPolicy, Traits
from graphspec.declare.ops import UpdateOp
from graphspec.declare.parameters import ConstraintSpec, RegularizerSpec
from graphspec.declare.precision import Compute


class Observed(Struct, frozen=True, kw_only=True):
    """The observed traits of one model: buffers, random draws, coupled samples, recomputed forwards."""

    buffers: bool
    rng: bool
    batch_coupled: bool
    recomputes: bool = False


class OwnTerms(Struct, frozen=True, kw_only=True):
    """The model's own penalties and constraints, as Keras layers have, in addition to those of the spec."""

    regularizers: tuple[RegularizerSpec, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()


NO_TERMS = OwnTerms()


class Observations(Struct, frozen=True, kw_only=True):
    """Everything observed: traits by model, the types of values by name, and which losses count by themselves."""

    models: Mapping[str, Observed] = {}
    outputs: Mapping[str, TensorType] = {}
    counts: Mapping[str, bool] = {}
    """User's loss -> whether it returns (sum, count)."""
    terms: Mapping[str, OwnTerms] = {}
    """Model -> its own penalties and constraints."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What the compiler knows of one model; ``assumed`` lists the traits that are the worst case, not knowledge."""

    name: str
    root: str
    """The model whose declaration gives the structure: itself, or the end of its chain of likenesses."""
    cells: tuple[Cell, ...]
    """The cells of its parameters."""
    buffers: bool
    rng: bool
    batch_coupled: bool
    is_synced: bool
    """What couples samples does so over all processes."""
    recomputes: bool
    """Parts of a call run again when its gradient is taken."""
    assumed: tuple[str, ...]
    is_unwatched: bool
    """Nothing is known about whether its calls are recomputed; it is assumed that they are not."""
    updated: bool
    """Some update writes it."""
    policy: BufferPolicy | None
    """Its declared EMA policy for buffers."""
    compute: Compute
    """The dtype of its matrix products and convolutions; float32 for a single parameter, which has none."""
    has_rows: bool = False
    """It has tables whose gradients are kept as rows: embeddings that are `sparse`."""
    terms: OwnTerms = NO_TERMS
    """Its own penalties and constraints."""


@once_per_spec
def find_named(spec: GraphSpec) -> frozenset[str]:
    """Return every name that some op refers to."""
    return frozenset(reference.name for op in spec.ops.values() for reference in op.references())


@once_per_spec
def find_used_models(spec: GraphSpec) -> frozenset[str]:
    """Return the models that some op names, and those they are like."""
    used: set[str] = set()
    pending = list(filter(find_named(spec).__contains__, spec.models))
    while pending:
        name = pending.pop()
        like = spec.models[name].like
        used.add(name)
        pending.extend([like] if like is not None and like not in used else [])
    return frozenset(used)


@once_per_spec
def find_used_states(spec: GraphSpec) -> frozenset[str]:
    """Return the states that some op reads or writes, or that are returned."""
    return frozenset(spec.state).intersection((*find_named(spec), *(spec.outputs or ())))


def describe_models(spec: GraphSpec, observed: Observations | None) -> Mapping[str, ModelFacts]:
    """Return the facts of every model, hidden shadows of ``ema`` without ``into`` included."""
    cells = find_parameter_cells(spec)
    updated = {model for op in spec.ops.values() if isinstance(op, UpdateOp) for model in op.update}
    described = {
        name: _describe(spec, observed, name, root=find_root(spec, name), cells=cells[name], updated=name in updated)
        for name in spec.models
    }
    for name, op in spec.shadows().items():
        root = described[op.ema].root
        described[name] = _describe(spec, observed, name, root=root, cells=(parameters_of(name),), updated=False)
    return described


def find_root(spec: GraphSpec, name: str) -> str:
    """Return the model at the end of a chain of likenesses."""
    model = spec.models[name]
    while model.like is not None:
        name, model = model.like, spec.models[model.like]
    return name


def _describe(
    spec: GraphSpec, observed: Observations | None, name: str, *, root: str, cells: tuple[Cell, ...], updated: bool
) -> ModelFacts:
    """Return the facts of one model from its root's declaration, or from what was observed."""
    model, own = spec.models[root], spec.models.get(name)
    seen = None if observed is None else observed.models.get(root)
    declared, layers = model.traits or Traits(), find_layers(model.layers or ())
    assumed: tuple[str, ...] = ()
    if model.parameter is not None:
        buffers = rng = batch_coupled = False
    elif layers:
        kinds = {each.kind for each in layers}
        rng = any(draws(each.kind, each.options) for each in layers)
        buffers, batch_coupled = bool(kinds & BUFFERED), bool(kinds & COUPLED)
    elif seen is not None:
        buffers, rng, batch_coupled = seen.buffers, seen.rng, seen.batch_coupled
    else:  # the worst of what a class does not declare
        named = {"buffers": declared.buffers, "rng": declared.rng, "batch_coupled": declared.batch_coupled}
        buffers, rng, batch_coupled = (True if value is None else value for value in named.values())
        assumed = tuple(trait for trait, value in named.items() if value is None)
    return ModelFacts(
        name=name,
        root=root,
        cells=cells,
        buffers=buffers,
        rng=rng,
        batch_coupled=batch_coupled,
        is_synced=is_synced(model.layers or ()),
        recomputes=declared.recomputes is True or (seen is not None and seen.recomputes),
        assumed=assumed,
        is_unwatched=seen is None and model.class_ is not None and declared.recomputes is None,
        updated=updated,
        policy=own.buffers if own is not None else None,
        compute="float32" if model.parameter is not None else spec.compute(name),
        has_rows=any(layer.options.get("sparse") is True for layer in layers),
        terms=(observed or Observations()).terms.get(name, NO_TERMS),
    )


def is_synced(layers: tuple[Layer, ...]) -> bool:
    """Return whether some layer couples samples, and all that do so couple those of all processes."""
    coupled = [layer for layer in find_layers(layers) if layer.kind in COUPLED]
    return bool(coupled) and all(layer.options.get("sync") is True for layer in coupled)


def find_layers(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return layers with all that are inside them."""
    return tuple(inner for layer in layers for inner in (layer, *find_layers(layer.layers)))

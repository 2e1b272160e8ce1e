"""A document: what is known of a spec before it is known which of its ops fire together, and its modes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.losses import find_accumulating, find_counted, find_gathered, is_split
from compiler.declare import declare_models
from compiler.facts.models import ModelFacts, Observations
from compiler.facts.parameters import find_known_names
from compiler.ir.diagnose import DiagnosticSink
from compiler.ir.hazard_table import HazardTable
from compiler.ir.instructions import Frozen, Gradient, Instruction, TakeAccumulated, Transform
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Mode
from compiler.ir.value import Scheduled
from compiler.lower.context import LoweringContext
from compiler.lower.table import lower_op
from compiler.lower.verdict import find_checked, is_scaled
from compiler.passes.freeze import find_fully_frozen, freeze_parameters
from compiler.passes.order import find_ordering
from compiler.passes.policies import Policy
from compiler.passes.select import runs_in
from compiler.timing.curves import declare_scheduled
from compiler.timing.units import Pace
from compiler.types.dimension import TensorType
from compiler.types.infer_types import Structure
from compiler.types.values import Values, find_whole, infer_values
from graphspec.analysis.modes import Reach, find_reaches
from graphspec.declare.graph import GraphSpec

NO_AVERAGES: Mapping[str, str] = {}
"""No average stands in for its model."""
FIRST_PHASES: Mapping[str, str] = {}
"""Every optimizer is that of the first epoch."""


class Context(Struct, frozen=True, kw_only=True):
    """What passes may depend on in addition to what they are given."""

    spec: GraphSpec
    table: HazardTable
    policy: Policy
    pace: Pace
    observed: Observations | None
    """What a backend saw of users' classes; None before it looked."""
    sink: DiagnosticSink
    """Collects every problem."""
    types: Mapping[str, TensorType] = {}
    """The shapes and types of values, as far as they are known; none where some are wrong."""
    models: Mapping[str, ModelFacts] = {}

    @property
    def known(self) -> Observations:
        """Return what was observed, which may be nothing."""
        return self.observed or Observations()


class Document(Struct, frozen=True, kw_only=True, dict=True):
    """What the passes found out about a spec, all of its modes together."""

    spec: GraphSpec
    backend: str
    models: Mapping[str, ModelFacts]
    whole: ModeGraph
    """Every op, as it is in train mode."""
    structure: Structure
    """Types and layers, and the shapes that are certainly wrong."""
    values: Values
    """What is known of the values of the spec."""
    untyped: Values
    """The same before any type is known."""
    scheduled: Mapping[tuple[str | int, ...], Scheduled]
    """The numbers that change while training."""
    is_settled: bool = False
    """Train mode lowers to the nodes of ``whole``: what was learned since changes none of them."""
    uneven: frozenset[str] = frozenset()
    """The built-in means in windows that rows do not count."""
    open: frozenset[str] = frozenset()
    """The losses whose operands have shapes that no declaration gives."""

    @cached_property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the parameters of the models whose structure is known."""
        return find_known_names(declare_models(self.spec, self.models, self.structure, self.backend))


def begin_document(context: Context, models: Mapping[str, ModelFacts]) -> Document:
    """Return a document of which nothing but its models is known."""
    values = infer_values(context.spec, {})
    whole = ModeGraph(spec=context.spec, models=models, nodes={}, values=values, everything={}, ordering=())
    nothing = Structure(types={}, elements={}, open=frozenset(), layers={}, problems=())
    return Document(
        spec=context.spec,
        backend=context.table.backend,
        models=models,
        whole=whole,
        structure=nothing,
        values=values,
        untyped=values,
        scheduled=declare_scheduled(context.spec, context.pace),
    )


def lower_mode(
    document: Document,
    mode: Mode,
    context: Context,
    averages: Mapping[str, str] = NO_AVERAGES,
    phases: Mapping[str, str] = FIRST_PHASES,
    frozen: Frozen = (),
) -> ModeGraph:
    """Return the graph of a mode, and the nodes of the whole document as they are in that mode.

    ``averages``: model -> the average that is evaluated in its place; ``phases``: optimizer -> the one that steps in
    its place, at a later epoch; ``frozen``: parameters that are currently frozen.
    """
    spec, reaches = context.spec, find_reaches(context.spec)
    if document.is_settled and mode == "train" and not (averages or phases or frozen):
        nodes = _select(mode, document.whole.everything, reaches)
        is_all = len(nodes) == len(document.whole.everything)
        return document.whole if is_all else replace(document.whole, nodes=nodes)
    lowering = LoweringContext(
        spec=spec,
        mode=mode,
        backend=document.backend,
        models=document.models,
        reaches=reaches,
        values=document.values,
        whole=find_whole(document.values),
        accumulating=find_accumulating(spec),
        gathered=find_gathered(spec, mode),
        counted=find_counted(spec, mode, document.values, context.observed, document.uneven),
        open=document.open,
        split=is_split(spec, mode),
        checked=find_checked(spec),
        scaled=is_scaled(spec, mode, reaches),
        averages=averages,
        phases=phases,
        pace=context.pace,
        scheduled=document.scheduled,
    )
    lowered = {node.id: node for name, op in spec.ops.items() for node in lower_op(name, op, lowering)}
    fully_frozen = find_fully_frozen(spec, frozen, document.names) if frozen else frozenset[str]()
    open_sets = frozenset(name for name, value in document.values.items() if value.may_miss)
    everything = freeze_parameters(lowered, frozen, fully_frozen, spec, open_sets)
    everything = _mark_rows(everything, document.models)
    return ModeGraph(
        spec=spec,
        models=document.models,
        nodes=_select(mode, everything, reaches),
        values=document.values,
        everything=everything,
        ordering=find_ordering(spec, everything),
    )


def _mark_rows(nodes: Mapping[str, Instruction], models: Mapping[str, ModelFacts]) -> Mapping[str, Instruction]:
    """Return instructions of which those that give or take a set with rows say so."""
    if not any(each.has_rows for each in models.values()):
        return nodes
    sets: set[str] = set()
    for node in nodes.values():
        match node:
            case (
                Gradient(models=of, output=str() as output)
                | Transform(models=of, output=output)
                | TakeAccumulated(models=of, output=output)
            ):
                sets |= {output} if any(models[each].has_rows for each in of) else set()
            case _:
                pass
    return {
        name: node if sets.isdisjoint((*node.defines, *node.operands)) else replace(node, rows=True)
        for name, node in nodes.items()
    }


def _select(mode: Mode, nodes: Mapping[str, Instruction], reaches: Mapping[str, Reach]) -> Mapping[str, Instruction]:
    """Return the nodes that run in a mode."""
    return {name: node for name, node in nodes.items() if runs_in(mode, node, reaches)}

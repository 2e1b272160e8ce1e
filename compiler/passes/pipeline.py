"""Passes as data: what each is called, what it makes of a document or of the graph of a step, what is checked then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.losses import find_uneven
from compiler.checks import GRAPH_CHECKS, MODE_CHECKS, OWNERSHIP_CHECKS, check_recomputed
from compiler.checks.effects import check_defer_never, check_skip_scope
from compiler.checks.micro_batches import check_split_counts
from compiler.checks.versions import find_unordered_problems
from compiler.facts.models import ModelFacts, describe_models
from compiler.ir.instructions import Forward, Gradient
from compiler.ir.step_graph import StepGraph
from compiler.passes.commits import find_commits
from compiler.passes.decisions import explain_decisions
from compiler.passes.document import Context, Document, lower_mode
from compiler.passes.flags import infer_flags
from compiler.passes.hazards import find_hazards, resolve_cycles
from compiler.passes.inline import inline_parts
from compiler.passes.join import join_calls
from compiler.passes.join_gradients import join_gradients
from compiler.passes.messages import bundle_messages
from compiler.passes.order import find_order_problems
from compiler.passes.paths import find_paths
from compiler.passes.schedule import schedule
from compiler.passes.versions import assign_versions
from compiler.types.infer_types import find_structure
from compiler.types.values import infer_values
from graphspec.diagnostics import Diagnostic

State = TypeVar("State")
Hook: TypeAlias = Callable[[str, StepGraph], None]
"""Called after every pass over the graph of a step, with its name and result: to dump, time or verify."""


class Pass(Struct, Generic[State], frozen=True, kw_only=True):
    """A named function from state to state, and the checks of its result."""

    name: str
    run: Callable[[State, Context], State]
    when: Callable[[State, Context], bool] = lambda state, context: True
    """Whether it may have something to do."""
    checks: tuple[Callable[[State, Context], Iterable[Diagnostic]], ...] = ()
    stops: bool = False
    """What its checks find leaves nothing to work on for the passes after it."""


def run_passes(
    state: State, passes: Iterable[Pass[State]], context: Context, hook: Callable[[str, State], None] | None = None
) -> State | None:
    """Return what the passes make of a state, in order; None where one of them stops. Checks report to the sink."""
    for each in passes:
        if each.when(state, context):
            state = each.run(state, context)
        if hook is not None:
            hook(each.name, state)
        found = [problem for check in each.checks for problem in check(state, context)]
        context.sink.report(found)
        if found and each.stops:
            return None
    return state


# ---------------------------------------------------------------- the document


def _lower(document: Document, context: Context) -> Document:
    """Lower every op, as it is in train mode."""
    whole = lower_mode(document, "train", context)
    return replace(document, whole=replace(whole, nodes=whole.everything))


def _infer_types(document: Document, context: Context) -> Document:
    """Infer shapes and types of values, the layers of models, and which of these mix samples in their shapes."""
    structure = find_structure(context.spec, document.whole.nodes, document.models, context.observed)
    values = infer_values(context.spec, structure.types)
    models: dict[str, ModelFacts] = {}
    for name, facts in document.models.items():
        layers = structure.layers.get(facts.root)
        is_mixing = layers is not None and layers.traits.batch_coupled
        models[name] = replace(facts, batch_coupled=True) if is_mixing else facts
    whole = replace(document.whole, values=values, models=models)
    return replace(document, models=models, whole=whole, structure=structure, values=values)


def _find_counts(document: Document, context: Context) -> Document:
    """Find how losses count, now that shapes are known.

    Shapes that were seen in a few batches do not check the operands of a loss: declarations do.
    """
    spec, structure = context.spec, document.structure
    if context.observed is not None:
        structure = find_structure(spec, document.whole.nodes, describe_models(spec, None), None)
    return replace(
        document,
        uneven=find_uneven(spec, {} if document.structure.problems else document.structure.elements),
        open=structure.open,
    )


def _lower_again(document: Document, context: Context) -> Document:
    """Lower once more where the counts of losses change what ops become."""
    is_same, is_settled = not document.uneven, not document.open
    for name, new in document.values.items():
        old = document.untyped[name]
        is_same = is_same and (old.is_summed, old.is_total) == (new.is_summed, new.is_total)
        is_settled = is_settled and replace(old, type=new.type) == new
    if is_same:
        return replace(document, is_settled=is_settled)
    again = _lower(document, context)
    structure = find_structure(context.spec, again.whole.nodes, document.models, context.observed)
    return replace(again, structure=structure, is_settled=True)


DOCUMENT: tuple[Pass[Document], ...] = (
    Pass(
        name="lower",
        run=_lower,
        checks=tuple(lambda document, context, check=check: check(document.whole) for check in OWNERSHIP_CHECKS),
    ),
    Pass(
        name="order",
        run=lambda document, context: document,
        checks=(
            lambda document, context: find_order_problems(context.spec, document.whole.nodes, document.whole.ordering),
        ),
        stops=True,
    ),
    Pass(
        name="types",
        run=_infer_types,
        checks=tuple(lambda document, context, check=check: check(document.whole) for check in MODE_CHECKS),
    ),
    Pass(
        name="counts",
        run=_find_counts,
        checks=(lambda document, context: check_split_counts(context.spec, document.values, context.known),),
    ),
    Pass(name="lower again", run=_lower_again),
)
"""What is known of a spec before it is known which of its ops fire together."""


# ---------------------------------------------------------------- the graph of a step


ANALYSES: tuple[Pass[StepGraph], ...] = (
    Pass(name="versions", run=lambda graph, context: assign_versions(graph)),
    Pass(name="paths", run=lambda graph, context: find_paths(graph)),
)
"""Which versions everything reads, and where gradients run: what the meaning of a step is."""

CHECKS: tuple[Pass[StepGraph], ...] = (
    Pass(
        name="check writes",
        run=lambda graph, context: graph,
        checks=(
            lambda graph, context: find_unordered_problems(context.spec, graph),
            lambda graph, context: check_skip_scope(context.spec, graph),
        ),
        stops=True,
    ),
    Pass(
        name="check versions",
        run=lambda graph, context: graph,
        checks=(
            *(lambda graph, context, check=check: check(context.spec, graph) for check in GRAPH_CHECKS),
            lambda graph, context: check_recomputed(context.spec, graph, context.table),
        ),
    ),
)
"""The checks of a step's meaning; a batch that is split later does not change it."""


def _may_join_gradients(graph: StepGraph, context: Context) -> bool:
    """Return whether gradients may be joined: those for several models, which no replica sends.

    The sets of replicas leave one by one, each as soon as it is there.
    """
    sets = {node.models for node in graph.nodes.values() if isinstance(node, Gradient)}
    return context.spec.join_gradients and context.spec.parallel is None and len(sets) > 1


def _may_join_calls(graph: StepGraph, context: Context) -> bool:
    """Return whether calls may be joined: those of a model that is called more than once on a micro-batch."""
    calls = [(node.model, node.micro_batch) for node in graph.nodes.values() if isinstance(node, Forward)]
    return context.spec.join_calls and len(set(calls)) < len(calls)


SCHEDULING: tuple[Pass[StepGraph], ...] = (
    Pass(name="commits", run=lambda graph, context: find_commits(graph)),
    Pass(name="hazards", run=lambda graph, context: find_hazards(graph, context.table)),
    Pass(
        name="cycles",
        run=lambda graph, context: resolve_cycles(graph, context.spec),
        checks=(lambda graph, context: graph.problems,),
        stops=True,
    ),
    Pass(name="join gradients", run=join_gradients, when=_may_join_gradients),
    Pass(name="join", run=join_calls, when=_may_join_calls),
    Pass(name="schedule", run=lambda graph, context: schedule(graph, context.policy)),
    Pass(
        name="messages",
        run=lambda graph, context: bundle_messages(graph),
        when=lambda graph, context: context.spec.parallel is not None,
    ),
    Pass(name="inline", run=lambda graph, context: inline_parts(graph)),
    Pass(name="flags", run=lambda graph, context: infer_flags(graph, is_sharded=context.spec.is_sharded)),
    Pass(
        name="decisions",
        run=lambda graph, context: explain_decisions(graph, context.policy),
        checks=(lambda graph, context: check_defer_never(context.spec, graph, graph.decisions),),
    ),
)
"""From the meaning of a step, split into micro-batches or not, to its sequence."""

"""Checks of models whose forwards are recomputed when a gradient is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from compiler import Plan
from compiler.ir.instructions import Forward, Gradient
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_instructions
from runtime.engine.load import find_span

REMEDIES = {
    "torch": "draw from torch's own generators, with `preserve_rng_state` of torch.utils.checkpoint left at True, or "
    "outside of the checkpoint",
    "tensorflow": "draw outside of the function given to tf.recompute_grad, as by a Dropout layer after it; under "
    "`checkpoint: true` draw from the model's own Keras SeedGenerator or tf.random.Generator",
}
"""How to make the second run of a forward draw the same numbers as the first."""


def find_checkpoints(program: Program) -> frozenset[str]:
    """Return the models that a program calls whose calls gradients run again because their ops say so."""
    calls = (each for each in find_instructions(program) if isinstance(each, Forward) and each.checkpoint)
    return frozenset(each.model for each in calls)


def find_redrawing(models: Collection[str], plan: Plan) -> Iterator[Diagnostic]:
    """Yield GS134 for every model that draws other numbers when a gradient recomputes it."""
    gradients = [each for each in find_instructions(plan.program) if isinstance(each, Gradient)]
    classes = {model.name for model in plan.program.models if model.kind == "class"}
    recomputed = {one.model for each in gradients for one in each.recomputed} & classes
    for name in (name for name in plan.spec.models if name in recomputed and name in models):
        yield Diagnostic(
            code="GS134",
            message=f"model '{name}' draws other random numbers when a gradient recomputes its forward",
            span=plan.spec.span("models", name, key=True),
            help=REMEDIES[plan.program.backend],
        )


def find_unexpected(models: Collection[str], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield GS135 for every model that is recomputed, but is compiled as one that is not."""
    for model in program.models:
        if model.name in models and not model.recomputes:
            yield Diagnostic(
                code="GS135",
                message=f"parts of model '{model.name}' are recomputed when a gradient is taken, and its class does "
                "not say so",
                span=find_span(spec, model.name),
                help="write `traits: {recomputes: true}` on the model: the schedule depends on it",
            )

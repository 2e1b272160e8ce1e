"""Averages of a built step: found by their names, and their statistics computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from compiler.passes.eval_averages import find_all_eval_averages
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, ForwardOp
from graphspec.diagnostics import Diagnostic
from graphspec.words import closest
from runtime.engine.backend import Engine
from runtime.problems import StepError


class Steppable(Protocol):
    """A built step."""

    @property
    def spec(self) -> GraphSpec:
        """Return the compiled spec."""
        ...

    def __call__(
        self, batch: Mapping[str, object], mode: str = "train", dataset: str | None = None
    ) -> Mapping[str, object]:
        """Take one step."""
        ...


def find_average(spec: GraphSpec, average: str) -> EmaOp:
    """Return an average of a spec; raise StepError (GS291) where there is none of that name."""
    op = spec.ops.get(average)
    if isinstance(op, EmaOp):
        return op
    known = [name for name, each in spec.ops.items() if isinstance(each, EmaOp)]
    near, has = closest(average, known), f"it has {', '.join(known)}" if known else "it has none"
    meant = f"; did you mean {near[0]!r}?" if near else ""
    message = f"the spec has no average {average!r}: {has}{meant}"
    raise StepError([Diagnostic(code="GS291", message=message)], spec.texts())


def find_recomputable(spec: GraphSpec, average: str) -> EmaOp:
    """Return an average whose statistics can be computed anew; raise StepError (GS291, GS292) where it would count.

    How often an evaluation is made must change nothing that is learnt, nor what the average holds later.
    """
    op = find_average(spec, average)
    target = op.target(average)
    policy = op.buffer_policy or next((spec.models[m].buffers for m in (target, op.ema) if m in spec.models), None)
    reaches = find_reaches(spec)
    calls = (
        name for name, each in spec.ops.items() if isinstance(each, ForwardOp) and each.forward in (average, target)
    )
    trained = next((name for name in calls if "train" in reaches[name].modes), None)
    if policy not in (None, "copy"):
        said, help = f"its policy for buffers is '{policy}', so that they would count later", "write `buffers: copy`"
    elif trained is not None:
        said, help = f"'{trained}' calls it in training", f"let '{trained}' call another average"
    else:
        return op
    message = f"the statistics of '{average}' cannot be computed anew: {said}"
    raise StepError([Diagnostic(code="GS292", message=message, help=help)], spec.texts())


def find_lender(spec: GraphSpec, average: str) -> EmaOp:
    """Return an average that can lend its model its weights; raise StepError (GS291) where another one stands in.

    Evaluations call the other one, so that they would not see the weights that the model was lent.
    """
    op = find_average(spec, average)
    for other in find_all_eval_averages(spec):
        if other.model == op.ema and other.op != average:
            message = f"evaluations of '{op.ema}' are those of its average '{other.op}', not of '{average}'"
            help = f"build the step with `ops.{other.op}.use.eval=separate`, or call it by name: `forward: {average}`"
            raise StepError([Diagnostic(code="GS291", message=message, help=help)], spec.texts())
    return op


def recompute_statistics(
    step: Steppable,
    engine: Engine,
    model: str,
    batches: Iterable[Mapping[str, object]],
    mode: str,
    dataset: str | None,
) -> None:
    """Let BatchNorm's statistics in a model become the means over batches, in the forwards of steps of a mode.

    All else that these steps change, as states, metrics and counts, is then as it was before. Raises StepError (GS292)
    where there are no such layers, no batches, or no such forwards: then nothing has changed.
    """
    before = engine.state(whole=False)
    try:
        take_statistics(step, engine, model, batches, mode, dataset)
    except BaseException:
        engine.restore(before)
        raise
    after, own = engine.state(whole=False).arrays, f"models.{model}."
    arrays = {name: after[name] if name.startswith(own) else each for name, each in before.arrays.items()}
    engine.restore(replace(before, arrays=arrays))


def take_statistics(
    step: Steppable,
    engine: Engine,
    model: str,
    batches: Iterable[Mapping[str, object]],
    mode: str,
    dataset: str | None,
) -> None:
    """Let statistics become the means over batches, in steps that count as all others do; raise StepError (GS292)."""
    from runtime.data.arrays import dataset_of  # imports numpy

    said = help = ""
    with engine.alone(), engine.recomputing(model) as count:  # of several processes each is given whole batches
        if count() is None:
            said, help = f"'{model}' has no layers of BatchNorm", "leave `recompute_buffers` out"
        steps = 0
        for batch in batches if not said else ():
            step(batch, mode, dataset_of(batch) or dataset)
            steps += 1
        if not said and not steps:
            said, help = f"there is no batch for '{model}'", "give at least one"
        elif not said and not count():
            said = f"steps of mode {mode} do not call '{model}', or not all of its layers"
            help = "let a forward of that mode call it; a `tf.function` hides layers"
        if said:
            message = f"{said}: its statistics cannot be computed anew"
            raise StepError([Diagnostic(code="GS292", message=message, help=help)], step.spec.texts())

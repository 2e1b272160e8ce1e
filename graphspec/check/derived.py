"""Rules on derived models, and on models whose weights spectral norm divides: what cannot be done with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphspec.analysis.derived import find_derived
from graphspec.analysis.modes import find_reaches
from graphspec.analysis.scope import RuleContext
from graphspec.declare.graph import GraphSpec
from graphspec.declare.layers import Layer
from graphspec.declare.ops import AdaptOp, EmaOp, ForwardOp, GradientOp
from graphspec.diagnostics import Diagnostic
from graphspec.words import enumerate_names


def check_derived(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check every derived model, and every call and gradient of one."""
    derived = find_derived(scope.spec)
    swapped = {op.ema: name for name, op in scope.sound_ops() if isinstance(op, EmaOp) and op.use.eval == "swap"}
    for name, op in scope.sound_ops():
        match op:
            case AdaptOp() if name in derived:
                yield from _check_adapt(scope, name, op, derived[name], swapped)
            case ForwardOp() if op.forward in derived and op.checkpoint:
                message = f"`checkpoint` of op '{name}' calls '{op.forward}', a derived model"
                help = "remove it: what a derived model computes is kept for its gradients"
                yield scope.report("GS127", message, ("ops", name, "checkpoint"), key=True, help=help)
            case GradientOp() if len(op.split({*scope.spec.models, *derived})[0]) > 1:
                for index in (index for index, target in enumerate(op.wrt) if target in derived):
                    message = f"`wrt` of op '{name}' names '{op.wrt[index]}', a derived model, next to other models"
                    help = "take its gradient in a `gradient` op of its own"
                    yield scope.report("GS127", message, ("ops", name, "wrt", index), help=help)
            case _:
                pass


def _check_adapt(
    scope: RuleContext, name: str, op: AdaptOp, model: str, swapped: dict[str, str]
) -> Iterator[Diagnostic]:
    """Check what one derived model is made of; ``swapped``: the averages that stand in for models in evaluation."""
    spec = scope.spec
    covered = scope.sets.get(op.gradients or "")
    if covered is not None and covered != (model,) and op.gradients not in scope.broken:
        message = (
            f"op '{name}' adapts model '{model}', but '{op.gradients}' has gradients of {enumerate_names(covered)}"
        )
        help = f"take the gradient with `wrt: {op.adapt}` alone"
        yield scope.report("GS122", message, ("ops", name, "gradients"), help=help)
    for path, rate in op.rates:
        if isinstance(rate, str) and scope.kind_of(rate) not in (None, "parameter"):
            message = f"`lr` of op '{name}' names model '{rate}' ({scope.kind_of(rate)}), which is not one number"
            help = "write a number, a schedule, or the name of a model like `rate: {parameter: {shape: []}}`"
            yield scope.report("GS127", message, ("ops", name, *path), help=help)
    if model in spec.models and spec.models[model].groups and any(each.frozen for each in spec.models[model].groups):
        message = f"op '{name}' adapts model '{model}', some of whose parameters are frozen"
        help = "make what is frozen a model of its own; a group with `lr: 0.0` in the adapt stays as it is there"
        yield scope.report("GS127", message, ("ops", name, "adapt"), help=help)
    modes = find_reaches(spec)[name].modes
    if spec.micro_batches > 1 and "train" in modes:
        message = f"op '{name}' adapts model '{model}' by a gradient of the whole batch, which `micro_batches` splits"
        help = "remove `micro_batches`, or write `mode: eval` if it adapts in evaluation only"
        yield scope.report("GS127", message, ("ops", name, "adapt"), help=help)
    if model in swapped and modes - {"train"}:
        message = f"op '{name}' adapts model '{model}' where the average of '{swapped[model]}' stands in for it"
        help = f"write `mode: train` on '{name}', or remove `use` from '{swapped[model]}'"
        yield scope.report("GS127", message, ("ops", name, "adapt"), help=help)


def check_spectral(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse ops that compute layers with spectral norm again, or with other weights than those that it divides.

    In training such a layer moves the vectors by which it divides, so a second run computes something else.
    """
    for name, op in scope.sound_ops():
        match op:
            case ForwardOp() if op.checkpoint and op.train is not False:
                found = (
                    op.forward,
                    "checkpoint",
                    "again when its gradient is taken",
                    "remove it, or write `train: false`",
                )
            case ForwardOp() if op.snapshot:
                found = op.forward, "snapshot", "with a copy of its weights", "remove it, or let the update wait"
            case AdaptOp():
                found = op.adapt, "adapt", "with weights made of its own", "use another normalization"
            case _:
                continue
        model, field, how, help = found
        if _has_spectral(scope.spec, model):
            message = f"`{field}` of op '{name}' runs '{model}' {how}, and `spectral_norm` in it would divide otherwise"
            yield scope.report("GS136", message, ("ops", name, field), key=True, help=help)


def _has_spectral(spec: GraphSpec, name: str) -> bool:
    """Return whether a model, or the one that it is like or an average of, has a layer with spectral norm."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        op, model = spec.ops.get(name), spec.models.get(name)
        if isinstance(op, AdaptOp | EmaOp):
            name = op.adapt if isinstance(op, AdaptOp) else op.ema
        elif model is not None and model.like is not None:
            name = model.like
    model = spec.models.get(name)
    return model is not None and any(layer.kind == "spectral_norm" for layer in _walk(model.layers or ()))


def _walk(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Yield layers and those inside them."""
    for layer in layers:
        yield layer
        yield from _walk(layer.layers)

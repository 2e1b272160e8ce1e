"""What transforms make of gradient sets, each by the formula of its paper, one gradient and one set at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.ops import ClipSpec, TransformOp
from tests.oracle.optimizers import DegenerateError, clip_norm, clip_value

if TYPE_CHECKING:
    from tests.oracle.step import StepValues

Gradients = Mapping[tuple[str, str], np.ndarray]
Shapes = Mapping[tuple[str, str], tuple[int, ...]]
VANISHING = 1e-14


def transform(step: StepValues, name: str, op: TransformOp) -> Gradients:
    """Return what an op makes of its sets."""
    sets, o = [step.gradients(one) for one in op.inputs], op.args
    kind = op.transform.name("torch")
    match kind:
        case "noise":
            shapes = step.targets(step.models_of(op.inputs[0]), whole=True)
            return add_noise(sets[0], shapes, draw(step, name, [count(shapes)], "normal") * o["std"])
        case "clip_agc":
            limits = o.get("clipping", 0.01), o.get("eps", 1e-3), o.get("axis", 0)
            return clip_agc(sets[0], weights(step, name, sets[0]), *limits)
        case "pcgrad":
            order = np.zeros((len(sets), len(sets)))
            order = order if o.get("order") == "listed" else draw(step, name, order.shape, "uniform")
            return pcgrad(complete(sets), order)
        case "project":
            return project(*complete(sets))
        case _:
            return {"clip_norm": clip_lengths, "clip_value": clip_value, **PLAIN}[kind](sets[0], **o)


def clip(step: StepValues, name: str, limit: ClipSpec, gradients: Gradients) -> Gradients:
    """Return what the clip of an update makes of its gradients."""
    if limit.agc is not None:
        eps = 1e-3 if limit.eps is None else limit.eps
        return clip_agc(gradients, weights(step, name, gradients), limit.agc, eps, 0)
    if limit.value is not None:
        return clip_value(gradients, limit.value)
    return clip_lengths(gradients, limit.norm, limit.eps or 0.0, limit.per)


def draw(step: StepValues, name: str, shape: Sequence[int], kind: str) -> np.ndarray:
    """Return the first numbers of an op in a step."""
    return step.draws.numbers(step.meaning.mode, step.number, name, 0, shape, kind)


def weights(step: StepValues, name: str, gradients: Gradients) -> Gradients:
    """Return the parameters of a set as an op sees them.

    What comes behind a window may run in a step that is not its own: where an epoch ends on a batch of another data
    set. There it sees the weights from the start of the step.
    """
    runs = name in step.versions.past
    versions = {holder: step.versions.seen(name, f"{holder}.params") if runs else 0 for holder, _ in gradients}
    return {(holder, key): step.parameters(holder, versions[holder])[key] for holder, key in gradients}


def clip_lengths(gradients: Gradients, norm: float, eps: float = 0.0, per: str = "global") -> Gradients:
    """Return a set no longer than a number, or every gradient of it."""
    if per == "global":
        return clip_norm(gradients, norm, eps)
    return {key: clip_norm({key: g}, norm, eps)[key] for key, g in gradients.items()}


def clip_agc(gradients: Gradients, weights: Gradients, clipping: float, eps: float, axis: int) -> Gradients:
    """Brock et al. 2021, equation 3, a unit being one index of an axis; of vectors and numbers there is one."""
    return {key: _clip_units(g, weights[key], clipping, eps, axis) for key, g in gradients.items()}


def _clip_units(g: np.ndarray, w: np.ndarray, clipping: float, eps: float, axis: int) -> np.ndarray:
    if g.ndim < 2:
        return _clip_unit(g, w, clipping, eps)
    units = zip(np.moveaxis(g, axis, 0), np.moveaxis(w, axis, 0), strict=True)
    return np.moveaxis(np.stack([_clip_unit(one, other, clipping, eps) for one, other in units]), 0, axis)


def _clip_unit(g: np.ndarray, w: np.ndarray, clipping: float, eps: float) -> np.ndarray:
    length, longest = math.sqrt((g * g).sum()), clipping * max(math.sqrt((w * w).sum()), eps)
    return g * (longest / length) if length > longest else g


def count(shapes: Shapes) -> int:
    """Return how many elements some parameters have."""
    return sum(math.prod(shape) for shape in shapes.values())


def add_noise(gradients: Gradients, shapes: Shapes, numbers: np.ndarray) -> Gradients:
    """Return a set with one of the numbers added to each element, which are drawn for all parameters in order."""
    found, start = {}, 0
    for key, shape in shapes.items():
        size = math.prod(shape)
        if key in gradients:
            found[key] = gradients[key] + numbers[start : start + size].reshape(shape)
        start += size
    return found


def complete(sets: Sequence[Gradients]) -> Sequence[Gradients]:
    """Return sets with zeros for the gradients that only others have."""
    every = {key: g for one in sets for key, g in one.items()}
    return [{key: one.get(key, 0 * g) for key, g in every.items()} for one in sets]


def scale(gradients: Gradients, factor: float) -> Gradients:
    """Return a set times a number."""
    return {key: factor * g for key, g in gradients.items()}


def centralize(gradients: Gradients, axis: int = 0) -> Gradients:
    """Yong et al. 2020, equation 1: every unit of a matrix, or of a larger tensor, gets the mean 0."""
    return {key: g if g.ndim < 2 else _centralize(g, axis) for key, g in gradients.items()}


def _centralize(g: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(np.stack([unit - unit.mean() for unit in np.moveaxis(g, axis, 0)]), 0, axis)


def normalize(gradients: Gradients, per: str = "global") -> Gradients:
    """Return a set of length 1, or with gradients of length 1; what is zero stays zero."""
    if per == "parameter":
        return {key: normalize({key: g})[key] for key, g in gradients.items()}
    length = math.sqrt(product(gradients, gradients))
    if length < VANISHING:
        raise DegenerateError("normalize divides a tensor that is zero up to rounding by its own norm")
    return {key: g / max(length, 1e-12) for key, g in gradients.items()}


PLAIN = {"scale": scale, "centralize": centralize, "normalize": normalize}


def product(a: Gradients, b: Gradients) -> float:
    """Return the inner product of two sets."""
    return sum(float((a[key] * b[key]).sum()) for key in a)


def project(a: Gradients, b: Gradients) -> Gradients:
    """Return one set without its part against another."""
    if product(b, b) < VANISHING**2:
        raise DegenerateError("a projection divides by a number that is zero up to rounding")
    share = min(0.0, product(a, b)) / product(b, b)
    return {key: a[key] - share * b[key] for key in a}


def pcgrad(sets: Sequence[Gradients], order: np.ndarray) -> Gradients:
    """Yu et al. 2020, algorithm 1: the others come in rising order of a row of numbers."""
    found = []
    for index, one in enumerate(sets):
        for other in np.argsort(order[index], kind="stable"):
            one = one if other == index else project(one, sets[other])
        found.append(one)
    return {key: sum(one[key] for one in found) for key in sets[0]}

"""Derivatives: by complex step, or by PyTorch on pure float64 functions where they are differentiated themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tests.oracle.counts import take_apart
from tests.oracle.numbers import Array, Reals
from tests.oracle.optimizers import DegenerateError
from tests.oracle.parts import share
from tests.oracle.world import SecondOrderError, Target, World

STEP = 1e-30
"""The imaginary shift: so small that second powers vanish, which makes the derivative exact."""


def differentiate(
    world: World,
    loss: str,
    targets: Mapping[Target, tuple[int, ...]],
    seed: str | None = None,
    *,
    is_own: bool = False,
) -> Mapping:
    """Return the derivative of a loss by every target, as arrays of their shapes, in a world.

    ``is_own``: of the loss that a part of the batch has by itself. In the base world it is a NumPy array; in another,
    where the result is differentiated again, a tensor.
    """
    if not targets:
        return {}
    if world is not world.base:
        return by_graph(world, loss, targets, seed, is_own=is_own)
    try:
        found = by_complex_step(world, loss, targets, seed, is_own=is_own)
    except SecondOrderError:
        found = by_graph(world, loss, targets, seed, is_own=is_own)
        return {key: value.detach().numpy() for key, value in found.items()}
    if not are_finite(found) and are_finite(by_graph(world, loss, targets, seed, is_own=is_own)):
        raise DegenerateError("values that are not finite are multiplied by zeros, which frameworks skip")
    return found


def are_finite(gradients: Mapping[Target, Array]) -> bool:
    """Return whether all elements of derivatives are finite, be they arrays or tensors."""
    found = (each if isinstance(each, np.ndarray) else each.detach().numpy() for each in gradients.values())
    return all(np.isfinite(each).all() for each in found)


def by_complex_step(
    world: World,
    loss: str,
    targets: Mapping[Target, tuple[int, ...]],
    seed: str | None = None,
    *,
    is_own: bool = False,
) -> Mapping[Target, np.ndarray]:
    """Return the derivatives from one evaluation in which every copy has one element of one target shifted."""
    sizes = [math.prod(shape) for shape in targets.values()]
    shifts: dict[Target, Sequence[Array]] = {}
    begin, count = 0, sum(sizes)
    for (target, shape), size in zip(targets.items(), sizes, strict=True):
        shift = np.zeros((count, size), np.complex128)
        shift[begin : begin + size] = np.eye(size) * (1j * STEP)
        shifts[target] = [shift.reshape((count, *shape))]
        begin += size
    shifted = World(world.step, Reals(), shifts).at(world.part)
    found = _scalar(shifted, loss, None if seed is None else world.operand(seed), is_own=is_own)
    slopes = np.broadcast_to(found.imag / STEP, (count,))
    parts = np.split(slopes, np.cumsum(sizes)[:-1])
    return {target: part.reshape(shape) for (target, shape), part in zip(targets.items(), parts, strict=True)}


def find_reached(world: World, loss: str, targets: Mapping[Target, tuple[int, ...]], seed: str | None) -> set[Target]:
    """Return the targets that a loss is made from: those to which some path of its graph leads."""
    slopes = _slopes(world, loss, targets, seed)
    return {target for target, slope in zip(targets, slopes, strict=True) if slope is not None}


def by_graph(
    world: World,
    loss: str,
    targets: Mapping[Target, tuple[int, ...]],
    seed: str | None = None,
    *,
    is_own: bool = False,
) -> Mapping[Target, Array]:
    """Return the derivatives by PyTorch, in a world of its own above the given one, themselves differentiable."""
    import torch

    slopes = _slopes(world, loss, targets, seed, is_own=is_own)
    return {
        target: torch.zeros(shape, dtype=torch.float64) if slope is None else slope[0]
        for (target, shape), slope in zip(targets.items(), slopes, strict=True)
    }


def _slopes(
    world: World, loss: str, targets: Mapping[Target, tuple[int, ...]], seed: str | None, *, is_own: bool = False
) -> Sequence[Array | None]:
    """Return the derivatives of a loss by every target; None for those that it is not made from."""
    import torch

    from tests.oracle.tensors import Tensors

    leaves = {
        target: torch.zeros((1, *shape), dtype=torch.float64, requires_grad=True) for target, shape in targets.items()
    }
    above = {} if world is world.base else world.shifts
    shifts = {key: [*above.get(key, ()), *([leaves[key]] if key in leaves else [])] for key in {**above, **leaves}}
    factor = None if seed is None else world.operand(seed)
    if world is world.base and factor is not None:
        factor = Tensors().lift(factor)
    found = _scalar(World(world.step, Tensors(), shifts).at(world.part), loss, factor, is_own=is_own)
    if not found.requires_grad:
        return [None] * len(leaves)
    return torch.autograd.grad(found.sum(), list(leaves.values()), create_graph=True, allow_unused=True)


def _scalar(world: World, loss: str, factor: Array | None, *, is_own: bool) -> Array:
    """Return one number per copy: the loss, or its product with a constant that the derivative is multiplied with."""
    found = _value(world, loss, is_own=is_own)
    found = found if factor is None else found * factor
    return found.reshape((found.shape[0], -1)).sum(1)


def _value(world: World, loss: str, *, is_own: bool) -> Array:
    """Return a loss, or what a micro-batch adds to it; ``loss|term``: one term of it, the sum of one that counts.

    ``is_own``: the loss of a part by itself, as if there were no other.
    """
    whole, is_term, term = loss.partition("|")
    leaf = share if world.part and not is_own else World.value
    return take_apart(world, whole, term, leaf) if is_term else leaf(world, whole)

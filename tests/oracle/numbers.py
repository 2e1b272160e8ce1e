"""The few array operations the oracle needs: for NumPy (real or complex) and for PyTorch in float64.

Every array has a leading axis of copies: one copy, or one for each perturbation of a derivative.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
"""A NumPy array or a tensor of PyTorch, the axis of copies first."""

_ERF = np.frompyfunc(math.erf, 1, 1)


class Numbers(ABC):
    """Where an evaluation happens; operators, comparisons, slices and ``reshape`` are those of the arrays."""

    keeps_graph = False
    """Whether what is computed can be differentiated afterwards."""

    @abstractmethod
    def lift(self, array: np.ndarray) -> Array:
        """Return a real NumPy array as one of this kind."""

    @abstractmethod
    def real(self, x: Array) -> Array:
        """Return what comparisons look at."""

    @abstractmethod
    def apply(self, name: str, x: Array) -> Array:
        """Return exp, log, sqrt or tanh of every element."""

    @abstractmethod
    def erf(self, x: Array) -> Array:
        """Return the error function of every element."""

    @abstractmethod
    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return a where the condition holds, else b."""

    @abstractmethod
    def sum(self, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
        """Return the sum over axes."""

    @abstractmethod
    def join(self, arrays: Sequence[Array], axis: int) -> Array:
        """Return arrays joined along an axis."""

    @abstractmethod
    def permute(self, x: Array, axes: Sequence[int]) -> Array:
        """Return the axes in another order."""

    @abstractmethod
    def spread(self, x: Array, shape: Sequence[int]) -> Array:
        """Return an array broadcast to a shape."""

    @abstractmethod
    def pick(self, x: Array, indices: Array, axis: int) -> Array:
        """Return the elements at indices along an axis, other axes alike."""

    @abstractmethod
    def einsum(self, formula: str, a: Array, b: Array) -> Array:
        """Return a sum of products."""

    @abstractmethod
    def argmax(self, x: Array, axis: int) -> Array:
        """Return the index of the greatest element along an axis, which stays with size 1."""

    @abstractmethod
    def settled(self, x: Array) -> np.ndarray:
        """Return the numbers alone, without derivatives."""

    @abstractmethod
    def argsort(self, x: Array, axis: int) -> Array:
        """Return the indices of the elements in rising order along an axis; equal ones stay as they were."""

    def mean(self, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
        """Return the mean over axes."""
        return self.sum(x, axes, keep=keep) / math.prod(x.shape[axis] for axis in axes)

    def align(self, *arrays: Array) -> list[Array]:
        """Return arrays with equally many axes, those that are missing put in behind the axis of copies."""
        rank = max(array.ndim for array in arrays)
        return [a.reshape((a.shape[0], *[1] * (rank - a.ndim), *a.shape[1:])) for a in arrays]

    def alike(self, arrays: Sequence[Array]) -> list[Array]:
        """Return arrays of one rank with equally many copies."""
        copies = max(array.shape[0] for array in arrays)
        return [self.spread(array, (copies, *array.shape[1:])) for array in arrays]


class Reals(Numbers):
    """NumPy: float64, or complex128 for derivatives by complex step."""

    def lift(self, array: np.ndarray) -> Array:
        """Return the array itself."""
        return array

    def real(self, x: Array) -> Array:
        """Return the real part."""
        return x.real

    def apply(self, name: str, x: Array) -> Array:
        """Return the function of NumPy."""
        return getattr(np, name)(x)

    def erf(self, x: Array) -> Array:
        """Return erf; of a complex number to first order in its imaginary part."""
        found = _ERF(x.real).astype(np.float64)
        if not np.iscomplexobj(x):
            return found
        return found + 1j * x.imag * (2 / math.sqrt(math.pi)) * np.exp(-x.real * x.real)

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return a where the condition holds, else b."""
        return np.where(condition, a, b)

    def sum(self, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
        """Return the sum over axes."""
        return x.sum(axis=axes, keepdims=keep) if axes else x

    def join(self, arrays: Sequence[Array], axis: int) -> Array:
        """Return arrays joined along an axis."""
        return np.concatenate(self.alike(arrays), axis=axis)

    def permute(self, x: Array, axes: Sequence[int]) -> Array:
        """Return the axes in another order."""
        return x.transpose(axes)

    def spread(self, x: Array, shape: Sequence[int]) -> Array:
        """Return an array broadcast to a shape."""
        return np.broadcast_to(x, shape)

    def pick(self, x: Array, indices: Array, axis: int) -> Array:
        """Return the elements at indices along an axis."""
        x, indices = self.alike([x, indices])
        return np.take_along_axis(x, indices.astype(np.int64), axis)

    def einsum(self, formula: str, a: Array, b: Array) -> Array:
        """Return a sum of products."""
        return np.einsum(formula, a, b)

    def argmax(self, x: Array, axis: int) -> Array:
        """Return the index of the greatest element."""
        return x.real.argmax(axis=axis, keepdims=True)

    def argsort(self, x: Array, axis: int) -> Array:
        """Return the indices of the elements in rising order."""
        return np.argsort(x.real, axis=axis, kind="stable")

    def settled(self, x: Array) -> np.ndarray:
        """Return the real part."""
        return x.real

"""The array operations of the oracle on tensors of PyTorch, for second derivatives: pure functions in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tests.oracle.numbers import Array, Numbers


class Tensors(Numbers):
    """PyTorch in float64; nothing is written in place."""

    keeps_graph = True

    def lift(self, array: np.ndarray) -> Array:
        """Return a copy as a tensor."""
        return torch.tensor(array)

    def real(self, x: Array) -> Array:
        """Return the tensor itself."""
        return x

    def apply(self, name: str, x: Array) -> Array:
        """Return the function of PyTorch."""
        return getattr(torch, name)(x)

    def erf(self, x: Array) -> Array:
        """Return the error function of every element."""
        return torch.erf(x)

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return a where the condition holds, else b."""
        return torch.where(condition, a, b)

    def sum(self, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
        """Return the sum over axes."""
        return x.sum(dim=axes, keepdim=keep) if axes else x

    def join(self, arrays: Sequence[Array], axis: int) -> Array:
        """Return arrays joined along an axis."""
        return torch.cat(self.alike(arrays), dim=axis)

    def permute(self, x: Array, axes: Sequence[int]) -> Array:
        """Return the axes in another order."""
        return x.permute(*axes)

    def spread(self, x: Array, shape: Sequence[int]) -> Array:
        """Return an array broadcast to a shape."""
        return x.expand(*shape)

    def pick(self, x: Array, indices: Array, axis: int) -> Array:
        """Return the elements at indices along an axis."""
        return torch.gather(x, axis, indices.long())

    def einsum(self, formula: str, a: Array, b: Array) -> Array:
        """Return a sum of products."""
        return torch.einsum(formula, a, b)

    def argmax(self, x: Array, axis: int) -> Array:
        """Return the index of the greatest element."""
        return x.argmax(dim=axis, keepdim=True)

    def argsort(self, x: Array, axis: int) -> Array:
        """Return the indices of the elements in rising order."""
        return x.argsort(dim=axis, stable=True)

    def settled(self, x: Array) -> np.ndarray:
        """Return a copy without a graph."""
        return x.detach().numpy().copy()

"""A function of both frameworks side by side: values, first and second gradients in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import torch


def is_real(x: object) -> bool:
    """Return whether an operand is an array of floating numbers."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def derive(function: Callable[..., tf.Tensor], operands: Sequence[object]) -> list[np.ndarray]:
    """Return value, gradients of sum(y^2) and of the sum of its squared gradients, traced as one graph."""

    @tf.function(autograph=False)
    def compute():
        made = [tf.constant(x) if isinstance(x, np.ndarray) else x for x in operands]
        targets = [t for t, x in zip(made, operands, strict=True) if is_real(x)]
        with tf.GradientTape() as outer:
            outer.watch(targets)
            with tf.GradientTape() as inner:
                inner.watch(targets)
                y = function(*made)
                loss = tf.reduce_sum(y * y)
            first = inner.gradient(loss, targets, unconnected_gradients="zero")
            again = tf.add_n([tf.reduce_sum(each * each) for each in first])
        return [y, *first, *outer.gradient(again, targets, unconnected_gradients="zero")]

    return [value.numpy() for value in compute()]


def derive_torch(function: Callable[..., torch.Tensor], operands: Sequence[object]) -> list[np.ndarray]:
    """Return the same by PyTorch."""
    made = [torch.tensor(x, requires_grad=is_real(x)) if isinstance(x, np.ndarray) else x for x in operands]
    targets = [t for t, x in zip(made, operands, strict=True) if is_real(x)]
    y = function(*made)
    first = torch.autograd.grad((y * y).sum(), targets, create_graph=True, materialize_grads=True)
    again = sum((each * each).sum() for each in first)
    second = torch.autograd.grad(again, targets, materialize_grads=True) if again.requires_grad else made[:0]
    zeros = [torch.zeros_like(target) for target in targets]
    return [value.detach().numpy() for value in (y, *first, *(second or zeros))]


def assert_same(
    ours: Callable[..., tf.Tensor],
    theirs: Callable[..., torch.Tensor],
    *operands: object,
    second: float | None = 1e-12,
) -> None:
    """Check that two functions have the same values and gradients, to the last digits of float64.

    ``second`` is how near their second gradients are to be; None leaves those out.
    """
    mine, other, count = derive(ours, operands), derive_torch(theirs, operands), 1 + sum(map(is_real, operands))
    for index, (each, expected) in enumerate(zip(mine, other, strict=True)):
        near = 1e-12 if index < count else second
        if near is not None:
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(each, expected, rtol=near, atol=near * scale)

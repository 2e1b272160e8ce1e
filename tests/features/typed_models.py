"""Models whose parameters are of types that a step cannot train, of either framework."""

from __future__ import annotations


def make_torch(first, second):
    import torch
    from torch import nn

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = {"first": getattr(torch, first), "second": getattr(torch, second)}
            for name, dtype in kinds.items():
                can_train = dtype.is_floating_point or dtype.is_complex
                setattr(self, name, nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=can_train))

        def forward(self, x):
            return x * self.first + self.second

    return Typed()


def make_tensorflow(first, second):
    import tensorflow as tf

    class Typed(tf.Module):
        def __init__(self):
            super().__init__()
            self.first = tf.Variable(tf.ones(3, first))
            self.second = tf.Variable(tf.ones(3, second))

        def __call__(self, x):
            return x * self.first + tf.cast(self.second, x.dtype)

    return Typed()

"""Modules of TensorFlow that are what the hand-written nets of PyTorch are, under the same names."""

from __future__ import annotations

import tensorflow as tf
import torch
from torch import nn

Tensor = tf.Tensor


class Linear(tf.Module):
    """W x + b."""

    def __init__(self, net: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = (variable_of(each) for each in (net.weight, net.bias))

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        return tf.matmul(x, self.weight, transpose_b=True) + self.bias


class Norm(tf.Module):
    """BatchNorm over the rows, with PyTorch's running statistics."""

    def __init__(self, net: nn.BatchNorm1d) -> None:
        super().__init__()
        self.weight, self.bias = (variable_of(each) for each in (net.weight, net.bias))
        self.running_mean = variable_of(net.running_mean, trainable=False)
        self.running_var = variable_of(net.running_var, trainable=False)
        self.num_batches_tracked = variable_of(net.num_batches_tracked, trainable=False)

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        mean, variance = self.measure(x) if training else (self.running_mean, self.running_var)
        return (x - mean) / tf.sqrt(variance + 1e-5) * self.weight + self.bias

    def measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the statistics of a batch, and let the running ones follow."""
        rows = tf.cast(tf.shape(x)[0], x.dtype)
        mean = tf.reduce_mean(x, 0)
        variance = tf.reduce_mean(tf.square(x - mean), 0)
        self.running_mean.assign(0.9 * self.running_mean + 0.1 * mean)
        self.running_var.assign(0.9 * self.running_var + 0.1 * variance * rows / (rows - 1))
        self.num_batches_tracked.assign_add(1)
        return mean, variance


class Activation(tf.Module):
    """A function of x alone."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.kind, self.slope = type(net), getattr(net, "negative_slope", 0.0)

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        return tf.tanh(x) if self.kind is nn.Tanh else tf.where(x > 0, x, self.slope * x)


class Chain(tf.Module):
    """Layers one after another; its attributes are their numbers, as in PyTorch's Sequential."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.length = len(net)
        for index, each in enumerate(net):
            setattr(self, str(index), LAYERS.get(type(each), Activation)(each))

    def __call__(self, x: Tensor, training: bool = False) -> Tensor:
        for index in range(self.length):
            x = getattr(self, str(index))(x, training)
        return x


LAYERS = {nn.Linear: Linear, nn.BatchNorm1d: Norm}


def variable_of(value: torch.Tensor, *, trainable: bool = True) -> tf.Variable:
    """Return a variable with the numbers of a tensor."""
    return tf.Variable(value.detach().numpy(), trainable=trainable)

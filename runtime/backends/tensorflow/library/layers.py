"""Layers: what all have in common, stacks of them, and those that change no more than the shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf


class Layer(tf.Module):
    """A layer; its parameters and buffers are made by :meth:`make`, under the names they have in PyTorch."""

    layout = "any"
    """How it wants images: channels ``first``, channels ``last``, or ``any`` of the two."""
    seen: Any = None
    """A hook that gets the result and returns the one to continue with."""
    compute: tf.DType | None = None
    """The type in which operands are multiplied; None: that of the variables."""
    exact = True
    """It takes numbers of lower precision as float32; else as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: Any = ()  # of (name, variable), parameters first

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the variables of the layer; ``path`` is its place in the model."""

    def add(self, path: str, name: str, shape: Sequence[int], dtype: tf.DType, trainable: bool = True) -> tf.Variable:
        """Return a new variable of zeros, ``0.weight``."""
        variable = tf.Variable(tf.zeros(shape, dtype), name=f"{path}.{name}", trainable=trainable)
        self.tensors = (*self.tensors, (name, variable))
        return variable

    def named(self, path: str) -> Iterator[tuple[str, tf.Variable]]:
        """Yield the variables of the layer with their names."""
        for name, variable in self.tensors:
            yield f"{path}.{name}", variable

    def compute_in(self, dtype: tf.DType | None) -> None:
        """Multiply operands in a type from now on."""
        self.compute = dtype

    def operand(self, x: tf.Tensor) -> tf.Tensor:
        """Return an operand in the type in which it is multiplied; double precision stays."""
        return x if self.compute is None or x.dtype == tf.float64 else tf.cast(x, self.compute)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the result; ``last`` says that images have their channels last."""
        raise TypeError(f"{type(self).__name__} has no call")

    def run(self, x: tf.Tensor, training: bool, last: bool) -> tuple[tf.Tensor, bool]:
        """Return the result for an image of either layout, and the layout it has now."""
        wanted = last if self.layout == "any" else x.shape.rank == 4 and self.layout == "last"
        x = tf.cast(x, tf.float32) if self.exact and x.dtype == self.compute else x
        y = self.call(turned(x, last, wanted), training, wanted)
        wanted = wanted and y.shape.rank == 4
        return (y, wanted) if self.seen is None else (self.seen(turned(y, wanted, False)), False)


def turned(x: tf.Tensor, last: bool, wanted: bool) -> tf.Tensor:
    """Return an image whose channels are ``last``, or not, with its channels where they are wanted."""
    if last == wanted:
        return x
    return tf.transpose(x, (0, 2, 3, 1) if wanted else (0, 3, 1, 2))


class Stack(Layer):
    """Layers one after the other; images stay channels last between those that want them so."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.layers = layers

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the variables of all layers."""
        for index, layer in enumerate(self.layers):
            layer.make(f"{path}.{index}" if path else str(index), dtype)

    def compute_in(self, dtype: tf.DType | None) -> None:
        """Let all layers multiply operands in a type from now on."""
        self.compute = dtype
        for layer in self.layers:
            layer.compute_in(dtype)

    def named(self, path: str) -> Iterator[tuple[str, tf.Variable]]:
        """Yield the variables of all layers with their names."""
        for index, layer in enumerate(self.layers):
            yield from layer.named(f"{path}.{index}" if path else str(index))

    def run(self, x: tf.Tensor, training: bool, last: bool) -> tuple[tf.Tensor, bool]:
        """Return the result of the last layer, and its layout."""
        for layer in self.layers:
            x, last = layer.run(x, training, last)
        return x, last


class Residual(Stack):
    """The input plus what the layers make of it."""

    def run(self, x: tf.Tensor, training: bool, last: bool) -> tuple[tf.Tensor, bool]:
        """Return x + layers(x), and its layout."""
        y, wanted = super().run(x, training, last)
        x = turned(x, last, wanted)
        if x.dtype != y.dtype:  # one of the two is of lower precision
            x, y = tf.cast(x, tf.float32), tf.cast(y, tf.float32)
        y = x + y
        return (y, wanted) if self.seen is None else (self.seen(turned(y, wanted, False)), False)


class Sequential(Stack):
    """A model: layers one after the other, with their variables; images are channels first for who calls it."""

    def __init__(self, *layers: Layer, dtype: tf.DType = tf.float32, compute: tf.DType | None = None) -> None:
        super().__init__(*layers)
        self.make("", dtype)
        self.compute_in(compute)

    def __call__(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the result of the last layer."""
        y, last = self.run(tf.convert_to_tensor(x), training, False)
        return turned(y, last, False)

    def named_parameters(self) -> dict[str, tf.Variable]:
        """Return the parameters by name, in PyTorch's order."""
        return {name: variable for name, variable in self.named("") if variable.trainable}

    def named_buffers(self) -> dict[str, tf.Variable]:
        """Return the buffers by name."""
        return {name: variable for name, variable in self.named("") if not variable.trainable}

    def parameters(self) -> list[tf.Variable]:
        """Return the parameters."""
        return list(self.named_parameters().values())

    def buffers(self) -> list[tf.Variable]:
        """Return the buffers."""
        return list(self.named_buffers().values())


class ParameterModel(Sequential):
    """A single tensor that is trained."""

    def __init__(self, shape: Sequence[int], dtype: tf.DType = tf.float32) -> None:
        super().__init__(dtype=dtype)
        self.value = tf.Variable(tf.zeros(shape, dtype), name="value")

    def __call__(self, training: bool = False) -> tf.Tensor:
        """Return the tensor as a value of its own."""
        return tf.identity(self.value)

    def named(self, path: str) -> Iterator[tuple[str, tf.Variable]]:
        """Yield the tensor with its name."""
        yield "value", self.value


class Dropout(Layer):
    """Dropout that draws keyed numbers where a source of them is attached as ``random``."""

    exact = False
    random: Any = None

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x, while training with elements zeroed with probability p and the others divided by 1 - p."""
        if not training or self.p == 0.0:
            return x
        if self.p == 1.0:
            return tf.zeros_like(x)
        if self.random is None:
            return tf.nn.dropout(x, self.p)
        shape = tf.gather(tf.shape(x), (0, 3, 1, 2)) if last else tf.shape(x)
        mask = self.random.keep_mask(shape, self.p, x.dtype) / (1.0 - self.p)
        return x * turned(mask, False, last)


class Flatten(Layer):
    """All axes but the batch as one."""

    exact = False
    layout = "first"

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x as [batch, elements]."""
        size = x.shape[1:].num_elements()
        if size is None:
            size = tf.reduce_prod(tf.shape(x)[1:])
        return tf.reshape(x, (tf.shape(x)[0], size))


class Reshape(Layer):
    """The same elements in another shape, the batch left as it is."""

    exact = False
    layout = "first"

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x as [batch, *shape]."""
        return tf.reshape(x, (tf.shape(x)[0], *self.shape))


class Identity(Layer):
    """What comes in."""

    exact = False

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x."""
        return x

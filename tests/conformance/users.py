"""The classes and functions of tests/properties/users.py for TensorFlow; what layers of Keras bring along they do."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

from graphspec.declare.graph import GraphSpec
from tests.oracle.initial import initial_state


class Model(tf.Module):
    """Named parameters of some shapes, all of them zeros until they are filled."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, tf.Variable(tf.zeros(shape, tf.float64)))

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Return the parameters."""
        return {name: value for name, value in vars(self).items() if isinstance(value, tf.Variable)}


class Coder(Model):
    """tanh(W x + b)."""

    def __init__(self, size: int) -> None:
        super().__init__(weight=(size, size), bias=(size,))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.matmul(x, self.weight, transpose_b=True) + self.bias)


class Reader(Model):
    """The transposed W times x, every element scaled; W is another's."""

    def __init__(self, size: int) -> None:
        super().__init__(weight=(size, size), scale=(size,))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, self.weight) * self.scale


class Mirror(tf.Module):
    """W tanh(W x) + b: two layers that share their weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = Model(weight=(size, size)), Model(bias=(size,))
        self.second.weight = self.first.weight

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Return the parameters."""
        return {"first.weight": self.first.weight, "second.bias": self.second.bias}

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        inner = tf.tanh(tf.matmul(x, self.first.weight, transpose_b=True))
        return tf.matmul(inner, self.second.weight, transpose_b=True) + self.second.bias


class Idler(Model):
    """tanh(W x), with a parameter that it does not use."""

    def __init__(self, size: int) -> None:
        super().__init__(weight=(size, size), spare=(size,))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.matmul(x, self.weight, transpose_b=True))


class Recoder(Coder):
    """A coder that only says that it is recomputed: `tf.recompute_grad` has no second derivatives, which specs take."""


class Keeper(keras.layers.Layer):
    """A coder with penalties and a constraint of its own, as layers of Keras have them."""

    def __init__(self, size: int, weight: Mapping[str, float], bias: Mapping[str, float], constraint: str = "") -> None:
        super().__init__(dtype="float64")
        kept = {"constraint": keras.constraints.NonNeg()} if constraint == "non_negative" else {}
        self.weight = self.add_weight(shape=(size, size), name="weight", regularizer=_penalise(**weight), **kept)
        self.bias = self.add_weight(shape=(size,), name="bias", regularizer=_penalise(**bias), **kept)
        self.built = True

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Return the parameters."""
        return {"weight": self.weight, "bias": self.bias}

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return the code of x."""
        return tf.tanh(tf.matmul(x, self.weight, transpose_b=True) + self.bias)


def _penalise(l1: float = 0.0, l2: float = 0.0) -> keras.regularizers.Regularizer | None:
    """Return a penalty, or none."""
    return keras.regularizers.L1L2(l1, l2) if l1 or l2 else None


class Louder(Model):
    """tanh(W x), twice that in training: a module that several models may hold."""

    def __init__(self, size: int) -> None:
        super().__init__(weight=(size, size))

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        return tf.tanh(tf.matmul(x, self.weight, transpose_b=True)) * (2 if training else 1)


class Speaker(Model):
    """What an inner module makes of x, every element scaled; in training one third of x is added."""

    def __init__(self, size: int) -> None:
        super().__init__(scale=(size,))
        self.inner = Louder(size)

    def variables_by_name(self) -> dict[str, tf.Variable]:
        """Return the parameters."""
        return {"inner.weight": self.inner.weight, "scale": self.scale}

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        found = self.inner(x, training) * self.scale
        return found + x / 3 if training else found


USED = (Coder, Reader, Mirror, Idler, Recoder, Keeper, Louder, Speaker)
CLASSES: Mapping[str, type[Model | Mirror | Keeper]] = {f"{__name__}:{one.__name__}": one for one in USED}


def bend(x: tf.Tensor, strength: float = 1.0) -> tf.Tensor:
    """Return x / sqrt(1 + strength x^2)."""
    return x * tf.math.rsqrt(1 + strength * tf.square(x))


def gap(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the mean of log(1 + (x - y)^2)."""
    return tf.reduce_mean(tf.math.log1p(tf.square(x - y)))


def kept(x: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum of log(1 + x^2), its mean for every row, over the rows whose label is not 0, and how many."""
    keep = tf.cast(label != 0, x.dtype)
    rows = tf.reduce_mean(tf.reshape(tf.math.log1p(tf.square(x)), (tf.shape(x)[0], -1)), 1)
    return tf.reduce_sum(rows * keep), tf.reduce_sum(keep)


def make_models(spec: GraphSpec) -> Mapping[str, Model | Mirror | Keeper]:
    """Return the models of classes with keyed initial weights, those tied that the spec says are, as in PyTorch."""
    paths = {name: model.class_path("tensorflow") for name, model in spec.models.items()}
    made = {name: CLASSES[path](**spec.models[name].args) for name, path in paths.items() if path}
    for name, model in list(made.items()):
        traits = spec.models[name].traits
        for tie in traits.ties if traits is not None else ():
            other, _, parameter = tie.partition(".")
            inner = parameter.rpartition(".")[0]
            shared = getattr(made[other], inner or parameter)
            if isinstance(shared, type(model)):
                made[name] = shared
            else:
                setattr(model, inner or parameter, shared)
    for name, model in made.items():
        variables = model.variables_by_name()
        first = initial_state(spec, name, {key: tuple(each.shape) for key, each in variables.items()}, spec.seed)
        for key, variable in variables.items():
            variable.assign(first[key])
    return made

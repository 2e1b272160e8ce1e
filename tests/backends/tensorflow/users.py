"""Classes and functions a user might bring: used by the tests as ``tests.backends.tensorflow.users:Name``."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf


class Plain(keras.Model):
    """A dense layer, which is built when it is first called."""

    def __init__(self, out: int = 3) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(out)

    def call(self, x):
        return self.layer(x)

    def encode(self, x):
        return self.layer(x), tf.nn.relu(self.layer(x))


class Stateful(keras.Model):
    """Batch statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = keras.layers.Dense(3), keras.layers.BatchNormalization()
        self.drop = keras.layers.Dropout(0.5)

    def call(self, x, training=False):
        return self.drop(self.norm(self.layer(x), training=training), training=training)


class Module(tf.Module):
    """A module of TensorFlow with variables of its own."""

    def __init__(self, out: int = 3, dtype: str = "float32") -> None:
        super().__init__()
        start = np.random.default_rng(0).normal(size=(4, out))
        self.kernel = tf.Variable(tf.constant(start, dtype), name="kernel")
        self.bias = tf.Variable(tf.zeros(out, dtype), name="bias")

    def __call__(self, x):
        return x @ self.kernel + self.bias


class Open(tf.Module):
    """A module that makes its variables when it is first called."""

    kernel = None

    def __call__(self, x):
        if self.kernel is None:
            self.kernel = tf.Variable(tf.ones((x.shape[-1], 3), x.dtype), name="kernel")
        return x @ self.kernel


class Noisy(Module):
    """Noise of TensorFlow's own operation."""

    def __call__(self, x, training=False):
        y = super().__call__(x)
        return y + tf.random.normal(tf.shape(y)) if training else y


class Nested(Module):
    """Noise inside a function of its own."""

    @tf.function
    def shaken(self, y):
        return y + tf.random.stateless_normal(tf.shape(y), (1, 2))

    def __call__(self, x):
        return self.shaken(super().__call__(x))


class Asserting(Module):
    """An assertion about values, two calls deep."""

    def __call__(self, x):
        return self.check(super().__call__(x))

    def check(self, y):
        tf.debugging.assert_less(tf.shape(y)[0], 5, message="too many samples")
        return y


class Raising(Plain):
    """An error two calls deep, while the graph is made."""

    def call(self, x):
        return self.check(super().call(x))

    def check(self, y):
        raise ValueError("nothing fits")


class Branching(Plain):
    """Python that decides by a value."""

    def call(self, x):
        y = super().call(x)
        return y * 2 if tf.reduce_sum(x) > 0 else y


class Numeric(Module):
    """Values taken out of the graph."""

    def __call__(self, x):
        return super().__call__(tf.constant(np.asarray(x.numpy())))


class Growing(Module):
    """A variable more with every call."""

    def __call__(self, x):
        self.extra = tf.Variable(tf.zeros(3))
        return super().__call__(x) + self.extra


class Unused(Module):
    """A parameter that has no part in the result."""

    def __init__(self) -> None:
        super().__init__()
        self.head = tf.Variable(tf.ones(2), name="head")


class Named(Plain):
    """Results by name, in another order."""

    def call(self, x):
        return {"second": x, "first": super().call(x)}


class Tapped(keras.Model):
    """An inner layer worth a look."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(3)

    def call(self, x):
        return self.last(self.inner(x))


class Own(tf.Module):
    """A model that gives its own variable."""

    def __init__(self) -> None:
        super().__init__()
        self.own = tf.Variable(tf.ones(3))

    def __call__(self, x):
        return self.own


class Rolling(Module):
    """NumPy's dice."""

    def __call__(self, x):
        return super().__call__(x) * np.random.uniform()


class Replacing(Module):
    """An attribute that is replaced, not written."""

    center = 0.0

    def __call__(self, x):
        y = super().__call__(x)
        self.center = 0.9 * self.center + 0.1 * tf.reduce_mean(y, 0)
        return y - self.center


class NoModel:
    """Something that is no model."""


class Broken(tf.Module):
    """A constructor that fails."""

    def __init__(self) -> None:
        raise OSError("no such weights")


class Traced(Module):
    """A module that counts how often Python runs it."""

    calls = 0

    def __call__(self, x):
        type(self).calls += 1
        return super().__call__(x)


def half_squared(prediction, target):
    """Return (sum, count) of a loss."""
    difference = prediction - target
    return 0.5 * tf.reduce_sum(tf.square(difference)), tf.size(difference)


def squares(prediction, target):
    """Return a loss that is no single number."""
    return tf.square(prediction - target)


class Rooted(Plain):
    """A root of zero, whose derivative is infinite."""

    def call(self, x):
        return tf.sqrt(super().call(x) * 0.0)


class Recomputing(keras.Model):
    """Two layers behind each other with BatchNorm and dropout, where asked for, that `tf.recompute_grad` runs."""

    def __init__(self, on, norm=False, drop=False):
        super().__init__()
        self.on = on
        self.first, self.last = keras.layers.Dense(6), keras.layers.Dense(4)
        self.norm = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5) if norm else None
        self.drop = keras.layers.Dropout(0.5) if drop else None
        self.built = True
        self.first.build((None, 4))
        self.last.build((None, 6))
        for count, layer in enumerate((self.first, self.last), start=1):
            layer.kernel.assign(np.sin(count * np.arange(24.0) + 1).reshape(layer.kernel.shape[::-1]).T)
        if self.norm is not None:
            self.norm.build((None, 6))

    def call(self, x, training=None):
        def inner(x):
            hidden = self.first(x)
            hidden = tf.tanh(hidden if self.norm is None else self.norm(hidden, training=training))
            return self.last(hidden if self.drop is None else self.drop(hidden, training=training))

        return tf.recompute_grad(inner)(x) if self.on else inner(x)


class Several(keras.Model):
    """Two results that `tf.recompute_grad` runs again."""

    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = (keras.layers.Dense(width) for width in (6, 4, 4))
        self.built = True
        for layer, width in ((self.first, 4), (self.left, 6), (self.right, 6)):
            layer.build((None, width))

    def call(self, x):
        def inner(x):
            hidden = tf.tanh(self.first(x))
            return self.left(hidden), self.right(hidden)

        return tf.recompute_grad(inner)(x)


class OwnGradient(keras.Model):
    """A product whose gradient, written by hand, reads the weight again."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(4, use_bias=False)
        self.layer.build((None, 4))
        self.built = True

    def call(self, x):
        @tf.custom_gradient
        def product(x):
            def differentiate(upstream, variables=None):
                return upstream @ tf.transpose(self.layer.kernel), [tf.transpose(x) @ upstream]

            return x @ self.layer.kernel, differentiate

        return product(x)

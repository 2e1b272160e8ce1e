"""Classes that derived models are made of: a weight used twice, a method, statistics; and some that are refused."""

from __future__ import annotations


def make_torch(compiled=False):
    import torch
    from torch import nn

    class Mirror(nn.Module):
        """W tanh(W x + b): two layers with one weight."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.encode(x))

        def encode(self, x):
            return torch.tanh(self.first(x))

    return torch.compile(Mirror(), backend="eager") if compiled else Mirror()


def make_tensorflow(compiled=False):
    import tensorflow as tf

    class Part(tf.Module):
        def __init__(self, **values):
            super().__init__()
            for name, value in values.items():
                setattr(self, name, value)

    class Mirror(tf.Module):
        """W tanh(W x + b): two layers with one weight."""

        def __init__(self):
            super().__init__()
            weight = tf.Variable(tf.random.normal((2, 2), dtype=tf.float64))
            self.first, self.second = (
                Part(weight=weight, bias=tf.Variable(tf.random.normal((2,), dtype=tf.float64))),
                Part(weight=weight),
            )

        def __call__(self, x):
            return tf.matmul(self.encode(x), self.second.weight, transpose_b=True)

        def encode(self, x):
            return tf.tanh(tf.matmul(x, self.first.weight, transpose_b=True) + self.first.bias)

    return Mirror()  # which a step traces anyway


def make_idle_torch():
    import torch
    from torch import nn

    class Idle(nn.Module):
        """tanh(W x), with a parameter that it does not use."""

        def __init__(self):
            super().__init__()
            self.weight, self.spare = nn.Parameter(torch.eye(2)), nn.Parameter(torch.ones(2))

        def forward(self, x):
            return torch.tanh(x @ self.weight.T)

    return Idle()


def make_idle_tensorflow():
    import tensorflow as tf

    class Idle(tf.Module):
        """tanh(W x), with a parameter that it does not use."""

        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(tf.eye(2, dtype=tf.float64))
            self.spare = tf.Variable(tf.ones(2, dtype=tf.float64))

        def __call__(self, x):
            return tf.tanh(tf.matmul(x, self.weight, transpose_b=True))

    return Idle()


def make_keras(normed=True):
    import keras

    class Normed(keras.Model):
        """A network, with BatchNorm or without."""

        def __init__(self):
            super().__init__()
            self.first, self.last = keras.layers.Dense(4), keras.layers.Dense(1)
            if normed:
                self.norm = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
            self(keras.ops.zeros((1, 2)))

        def call(self, x, training=False):
            x = self.first(x)
            return self.last(keras.ops.tanh(self.norm(x, training=training) if normed else x))

    return Normed()


def make_listed():
    import tensorflow as tf

    class Listed(tf.Module):
        def __init__(self):
            super().__init__()
            self.kept = [tf.Variable(tf.ones((2, 1), tf.float64))]

        def __call__(self, x):
            return tf.matmul(x, self.kept[0])

    return Listed()


def make_traced():
    import tensorflow as tf

    class Traced(tf.Module):
        def __init__(self):
            super().__init__()
            self.kept = tf.Variable(tf.ones((2, 1), tf.float64))

        @tf.function
        def __call__(self, x):
            return tf.matmul(x, self.kept)

    return Traced()


def make_recomputing():
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Recomputing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 1)

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    return Recomputing()

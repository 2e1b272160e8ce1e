"""Functions that make models, of either framework."""

from __future__ import annotations


def make_torch(width):
    from torch import nn

    return nn.Sequential(nn.Linear(4, width))


def make_lazy_torch(width):
    from torch import nn

    return nn.Sequential(nn.LazyLinear(width))


def make_keras(width):
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(width)])


def make_lazy_keras(width):
    import keras

    return keras.Sequential([keras.layers.Dense(width)])


def make_normed_torch(width):
    from torch import nn

    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))


def make_normed_keras(width):
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.BatchNormalization()])


def make_deep_torch():
    from torch import nn

    return nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False))


def make_deep_keras():
    import keras

    wide, narrow = (keras.layers.Dense(size, use_bias=False) for size in (3, 2))
    return keras.Sequential([keras.Input((4,)), wide, keras.layers.Activation("tanh"), narrow])

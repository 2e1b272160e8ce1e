"""Models that find the sizes of their inputs when they are called for the first time."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch"):
    import torch

    class Torch(torch.nn.Sequential):
        """Two layers that know their results alone."""

        def __init__(self) -> None:
            super().__init__(torch.nn.LazyLinear(4), torch.nn.Tanh(), torch.nn.LazyLinear(2))


if find_spec("tensorflow"):
    import keras

    def make_keras() -> keras.Model:
        """Return two layers that know their results alone."""
        dense = keras.layers.Dense
        return keras.Sequential([dense(4, activation="tanh", dtype="float32"), dense(2, dtype="float32")])

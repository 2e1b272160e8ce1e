"""Models of two layers of which a step is not to train the first, as their frameworks say it."""

from __future__ import annotations

from typing import Any


class FrozenTorch:
    """A module of PyTorch."""

    def __init__(self) -> None:
        import torch

        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
        self.let_train(wanted=False)

    def let_train(self, *, wanted: bool) -> None:
        """Let the first layer train, or not."""
        self.model[0].requires_grad_(wanted)


class FrozenTensorFlow:
    """A model of Keras."""

    def __init__(self) -> None:
        import keras

        self.model = keras.Sequential([keras.layers.Dense(2, activation="tanh"), keras.layers.Dense(2)])
        self.model.build((None, 2))
        self.let_train(wanted=False)

    def let_train(self, *, wanted: bool) -> None:
        """Let the first layer train, or not."""
        self.model.layers[0].trainable = wanted


def make_frozen(backend: str) -> Any:
    """Return a model whose first layer is frozen, with the means to unfreeze it."""
    return FrozenTorch() if backend == "torch" else FrozenTensorFlow()

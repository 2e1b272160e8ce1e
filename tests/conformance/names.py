"""The same parameters under the names that two frameworks have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from runtime.state import State

Names = Mapping[str, str]
"""What PyTorch calls a parameter, by what TensorFlow calls it; a kernel is the transposed matrix."""


def neutral(state: State, names: Names) -> State:
    """Return a state under PyTorch's names and layouts."""
    return replace(state, arrays={rename(name, names): turned(name, value) for name, value in state.arrays.items()})


def rename(name: str, names: Names) -> str:
    """Return PyTorch's name of a parameter, or of a slot of one."""
    for theirs, ours in names.items():
        model, _, parameter = theirs.partition(".")
        if name.endswith(f".{parameter}") and model in name:
            return name.removesuffix(parameter) + ours.partition(".")[2]
    return name


def turned(name: str, value: np.ndarray) -> np.ndarray:
    """Return a kernel of Keras as PyTorch keeps it."""
    return value.T if name.endswith(".kernel") else value


def fill(state: State, names: Names, draw: Callable[[str, np.ndarray], np.ndarray]) -> State:
    """Return a state with what a function of PyTorch's name and array makes of each array."""
    arrays = {
        name: turned(name, draw(rename(name, names), turned(name, value))) for name, value in state.arrays.items()
    }
    return replace(state, arrays=arrays)

"""States: tensors that outlive the step; each is replaced by another, so that graphs keep what they read."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runtime.backends.torch.library.threefry import derive_key, portable_numbers, square_root


def initial_state(
    seed: int,
    name: str,
    shape: Sequence[int],
    kind: str,
    bound: float,
    dtype: torch.dtype,
    device: torch.device | str,
) -> torch.Tensor:
    """Return a state before the first step, drawn under a key of (seed, state): the same on every framework.

    ``kind`` is zeros, ones, constant (= bound), uniform (within +-bound), normal (standard deviation = bound) or
    unit_normal (normal numbers, rows along the last axis scaled to the length ``bound``).
    """
    constants = {"zeros": 0.0, "ones": 1.0, "constant": bound}
    if kind in constants:
        return torch.full(shape, constants[kind], dtype=torch.float64).to(device, dtype)
    drawn = "uniform" if kind == "uniform" else "normal"
    numbers = portable_numbers(derive_key(seed, "state", name), torch.Size(shape).numel(), drawn).reshape(shape)
    if kind == "uniform":
        numbers = numbers * 2.0 - 1.0
    if kind == "unit_normal":
        squares = torch.zeros(shape[:-1], dtype=torch.float64)
        for column in numbers.unbind(-1):  # one after another: the order of a sum shows in its last bits
            squares = squares + column * column
        numbers = numbers / square_root(squares).unsqueeze(-1)
    return (numbers * bound).to(device, dtype)


def next_state(value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Return a value as what a state becomes: without its graph, in memory of its own; raise ValueError for others."""
    if value.shape != state.shape or value.dtype != state.dtype:
        found, expected = (f"{each.dtype} {list(each.shape)}".removeprefix("torch.") for each in (value, state))
        raise ValueError(f"a state stays what it is: found {found}, expected {expected}")
    return value.detach().clone()


def full_state(number: float, state: torch.Tensor) -> torch.Tensor:
    """Return a number everywhere as what a state becomes."""
    return torch.full_like(state, number)

"""Initial values of models, drawn under a key of (seed, model, parameter)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from runtime.backends.torch.library.threefry import derive_key, portable_numbers


def initial_tensor(
    seed: int,
    model: str,
    parameter: str,
    shape: Sequence[int],
    kind: str,
    bound: float,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the initial values of a parameter, the same on every device and framework.

    ``kind`` is zeros, ones, constant (= bound), uniform (within +-bound) or normal (standard deviation = bound).
    """
    constants = {"zeros": 0.0, "ones": 1.0, "constant": bound}
    if kind in constants:
        return torch.full(shape, constants[kind], dtype=dtype)
    numbers = portable_numbers(derive_key(seed, "initial", model, parameter), torch.Size(shape).numel(), kind)
    if kind == "uniform":
        numbers = numbers * 2.0 - 1.0
    return (numbers * bound).reshape(shape).to(dtype)


@torch.no_grad()
def set_initial(model: nn.Module, seed: int, name: str, values: Mapping[str, tuple[str, float]]) -> None:
    """Give a model called ``name`` its initial values; ``values`` has (kind, bound) by parameter or buffer."""
    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    for parameter, (kind, bound) in values.items():
        tensor = tensors[parameter]
        tensor.copy_(initial_tensor(seed, name, parameter, tensor.shape, kind, bound, tensor.dtype))


@contextmanager
def forked_seed(seed: int, name: str) -> Iterator[None]:
    """Seed torch's own random numbers by (seed, name) inside; outside they go on as if nothing had been drawn."""
    low, high = derive_key(seed, "construct", name)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(low | (high << 32))
        if devices:
            torch.cuda.manual_seed_all(low | (high << 32))
        yield

"""What the processes that take steps together must have in common: compared before a step, outside of runs too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, final

import torch
import torch.distributed as dist
from msgspec import Struct

from runtime.backends.torch.execution import ERRORS
from runtime.processes import compare, lost_in_message

WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types that show the bits of numbers, by their size in bytes."""
REMEDY = "call `build` with the same spec and seed, and with models of the same weights, on all processes"


@final
class Equality(Struct, kw_only=True):
    """Compares what the processes of a group begin with, once, and again after a state was restored."""

    is_due: bool = True

    def require(self, replicas: Any, found: Mapping[str, str], weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Raise SpecError (GS258), on all processes, where some begin with other weights or other things.

        ``replicas``: those of the step. ``found``: what else must be equal, as a message shows it, by name.
        """
        if replicas.count == 1:
            self.is_due = False
            return
        begun = {**found, "set of weights": digest_weights(weights)}
        compare(Present(count=replicas.count, device=replicas.device), lambda: begun, help=REMEDY)
        self.is_due = False


@final
class Present(Struct, frozen=True, kw_only=True):
    """The processes of torch.distributed's default group, which the caller has made."""

    count: int
    device: torch.device

    def gather(self, value: dict[str, str]) -> list[dict[str, str]]:
        """Return the values of all processes, by rank."""
        held: list[Any] = [None] * self.count
        with losing("all processes"), torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            dist.all_gather_object(held, value)
        return held


def digest_weights(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Return a digest of named tensors: of their types, shapes, and sums of their bits, which devices take exactly."""
    named = [(name, tensor.detach()) for name, tensor in tensors]
    shapes = [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in named]
    sums = [add_bits(tensor) for _, tensor in named]
    numbers = torch.stack(sums).tolist() if sums else []
    return digest(json.dumps([shapes, numbers]))


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def add_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of the bits of numbers as whole numbers: of the same numbers the same, in any order."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    bits = real.contiguous().reshape(-1).view(WHOLE_NUMBERS[real.itemsize])
    return bits.sum(dtype=torch.int64)


@contextmanager
def losing(whom: str) -> Generator[None]:
    """Raise SpecError (GS259) where a collective inside fails because another process is gone, or does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise lost_in_message(whom, f"torch: {ERRORS.clean(error)}") from error

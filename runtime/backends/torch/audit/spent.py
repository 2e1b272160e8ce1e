"""The time of the kernels in a backward, by the gradients that they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runtime.audit.trace import Spent


class Kernel(NamedTuple):
    """A kernel that ran: its time, and the storages that it was given and that it returned."""

    seconds: float
    given: frozenset[int]
    returned: frozenset[int]


def find_spent(kernels: Sequence[Kernel], ends: Mapping[int, int]) -> tuple[Spent, ...]:
    """Return the time of kernels by the gradients that they serve; ``ends``: storage of a gradient -> its tensor.

    From the last to the first: a storage that was let go of may have been given to another value.
    """
    serves = {key: frozenset({tensor}) for key, tensor in ends.items()}
    spent: dict[frozenset[int], float] = {}
    for kernel in reversed(kernels):
        served = frozenset[int]().union(*(serves.pop(key, ()) for key in kernel.returned))
        spent[served] = spent.get(served, 0.0) + kernel.seconds
        for key in kernel.given:
            serves[key] = serves.get(key, frozenset()) | served
    return tuple(Spent(tensors, seconds) for tensors, seconds in spent.items())

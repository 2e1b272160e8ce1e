"""What a check of a device is: cases, one after another, each of which is right or raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Wrong(AssertionError):
    """A case is not as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to try: ``run`` returns what it measured, the cells of a row or nothing, and raises where it is wrong.

    ``long``: it compiles graphs, which may take minutes.
    """

    name: str
    run: Callable[[], tuple[object, ...] | None]
    long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is asked of a device, by cases, the most telling first."""

    name: str
    asks: str
    """What it asks, for the page."""
    against: str
    """What that is compared with."""
    cases: Callable[[str], Iterator[Case]]
    """Yields the cases on a device."""
    share: float
    """Of the time that is left, relative to the checks behind it."""
    columns: tuple[str, ...] = ()
    """The titles of what is measured."""


def require(holds: bool, message: str) -> None:
    """Raise Wrong where something does not hold."""
    if not holds:
        raise Wrong(message)


def near(error: float, tolerance: float, subject: str) -> None:
    """Raise Wrong where an error is above a tolerance, or is no number."""
    require(error <= tolerance, f"{subject} is off by {error:.1e}, more than {tolerance:.0e}")


@contextmanager
def deterministic() -> Iterator[None]:
    """Let torch choose kernels that sum in the same order every time, where it has them."""
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)

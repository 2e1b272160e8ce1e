"""What timing a step asks of a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from compiler.ir.program import InputDecl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where steps are timed: the framework with its version, the device, and the threads of one operation."""

    framework: str
    device: str
    title: str
    """What kind of device it is; empty for the processor."""
    threads: int
    """0: as many as the framework chooses."""


class Meter(Protocol):
    """What a framework does around steps that are timed on one device."""

    def describe(self) -> Machine:
        """Return facts about the machine that the times depend on."""
        ...

    def place(self, value: object, declared: InputDecl) -> object:
        """Return an input as a tensor on the device, in the type that a step takes."""
        ...

    def copy(self, models: Mapping[str, object]) -> dict[str, object]:
        """Return copies of models; what they share, the copies share. Raises what copying them raises."""
        ...

    def array(self, value: object) -> npt.NDArray[np.generic] | None:
        """Return a copy of a tensor, array or number on the host; None for anything else."""
        ...

    def wait(self, result: object) -> None:
        """Wait until the device has finished a step, given what it returned."""
        ...

    def peak(self, run: Callable[[], object]) -> int | None:
        """Return the most bytes that a run allocates on top of what there is before it; None where that is unknown."""
        ...

"""Findings of a debug build: what is not finite, where it came from, and how that is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

STRICT = ("loss", "metric", "transform")
"""Kinds of ops whose results may not be infinite either; elsewhere an infinity may be meant, as in a mask."""


class NonFiniteReport(Exception):
    """Tell at which op the numbers of a step (GS261) or the order of its writes (GS262) went wrong."""

    def __init__(self, code: str, op: str, message: str, notes: tuple[str, ...], remedy: str) -> None:
        super().__init__("\n".join((f"{code}: {message}", *notes, remedy)))
        self.code, self.op, self.message, self.notes, self.remedy = code, op, message, notes, remedy


@dataclass(frozen=True)
class Suspect:
    """Something that is not finite: the op it came from, what there is to tell, and what it may have come from."""

    order: int
    op: str
    message: str
    ranges: tuple[str, ...]
    causes: tuple[Suspect, ...] = ()

    def origin(self) -> Suspect:
        """Return the first of what it came from; a value between that is finite ends the trail."""
        return min((cause.origin() for cause in self.causes), key=lambda each: each.order, default=self)

    def finding(self) -> NonFiniteReport:
        """Return the error that names the origin, and how far it came from there."""
        origin = self.origin()
        notes = origin.ranges
        if origin is not self:
            notes = (*notes, f"it came to light at {self.message}", *self.ranges)
        remedy = "take the cause away where it first appears: what comes after it only hands it on"
        return NonFiniteReport("GS261", origin.op, origin.message, notes, remedy)


class Weak(Protocol):
    """A reference that does not keep what it refers to."""

    def __call__(self) -> object:
        """Return it; None where nothing else has kept it."""


@dataclass(frozen=True)
class Done:
    """An op that has run in this step: what it made of what, and the versions of weights that it read.

    What it worked on is kept by name only as long as the step itself keeps it.
    """

    op: str
    kind: str
    outputs: tuple[str, ...]
    inputs: Mapping[str, Weak]
    reads: tuple[str, ...]

    def operands(self) -> dict[str, object]:
        """Return those of the values it worked on that are still there."""
        found = {name: value() for name, value in self.inputs.items()}
        return {name: value for name, value in found.items() if value is not None}


def statistics_text(numbers: int, least: float, greatest: float, mean: float) -> str:
    """Return minimum, maximum and mean of some numbers as a report shows them."""
    return f"{least:.4g}" if numbers == 1 else f"min {least:.4g}, max {greatest:.4g}, mean {mean:.4g}"


def share_text(fault: str, faulty: int, numbers: int) -> str:
    """Return how many of several numbers are ``nan`` or ``inf``: ``2 of 32 nan (6.2 %)``."""
    return f"{faulty} of {numbers} {fault} ({100 * faulty / numbers:.3g} %)"


def note_of(title: str, lines: list[str]) -> tuple[str, ...]:
    """Return one note with lines under a title; none where there are no lines."""
    return ("\n".join((title, *(f"  {line}" for line in lines))),) if lines else ()


def split_version(at: str) -> tuple[str, int]:
    """Return cell and version of ``net.params@1``."""
    cell, _, version = at.rpartition("@")
    return cell, int(version)

"""How far training has read its data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place between two batches; everything counts from 0."""

    epoch: int = 0
    """Epochs that have ended."""
    index: int = 0
    """Batches taken in the one under way."""
    samples: int = 0
    """Samples taken in it."""
    taken: int = 0
    """Batches taken in all."""

    def after(self, rows: int) -> Position:
        """Return the place behind a batch of so many samples."""
        return Position(epoch=self.epoch, index=self.index + 1, samples=self.samples + rows, taken=self.taken + 1)

    def at_next_epoch(self) -> Position:
        """Return the start of the next epoch."""
        return Position(epoch=self.epoch + 1, taken=self.taken)

"""What is known of a value before anything runs: its shape and its dtype."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.operands import Shape


def format_shape(shape: Shape | None) -> str:
    """Return a shape as the language writes it: ``[batch, 10]``; ``[...]`` where it is unknown."""
    return "[...]" if shape is None else f"[{', '.join(str(size) for size in shape)}]"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A shape, or None where even the rank is unknown, and a dtype, or None where it is unknown."""

    shape: Shape | None = None
    dtype: str | None = None

    def __str__(self) -> str:
        """Return ``[batch, 10] float32``."""
        return format_shape(self.shape) + (f" {self.dtype}" if self.dtype else "")


UNKNOWN = TensorType()

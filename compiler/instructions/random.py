"""``random``: draw a keyed random tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from compiler.instructions.base import InstructionBase
from compiler.instructions.wording import tell_options
from compiler.operands import Scheduled, Setting, Shape
from compiler.published import NAMES, TEXT, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Random(InstructionBase):
    """Draw a keyed random tensor; ``batch`` in the shape is the leading size of the step's inputs."""

    distribution: str
    output: str
    shape: Shape | None = None
    like: str | None = None
    options: Mapping[str, Setting] = field(default_factory=dict[str, "Setting"])
    gathered: bool = False
    """``like`` is one micro-batch of what is meant: it has another number of rows."""

    FIELDS: ClassVar[Object] = {"distribution": TEXT, "outputs": NAMES}

    @property
    def defines(self) -> tuple[str, ...]:
        """Return what is drawn."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the value that it is like."""
        return () if self.like is None else (self.like,)

    @property
    def recorded(self) -> bool:
        """Return that a draw is a constant."""
        return False

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the options of the distribution."""
        return tuple(self.options.values())

    @property
    def sizes(self) -> tuple[str, ...]:
        """Return the free sizes of its shape, and that of the batch where another number of rows is meant."""
        free = (size for size in self.shape or () if isinstance(size, str))
        return (*free, "batch") if self.gathered else tuple(free)

    @property
    def drawing(self) -> bool:
        """Return that it draws."""
        return True

    @property
    def phrase(self) -> str:
        """Return what is drawn, of which size, and which of its numbers change."""
        size = f"like {self.like}" if self.shape is None else _tell_shape(self.shape)
        options = {key: each for key, each in self.options.items() if isinstance(each, Scheduled)}
        return f"{self.output} ~ {self.distribution} {size}{tell_options(options)}"

    @property
    def title(self) -> str:
        """Return ``random normal``."""
        return f"random {self.distribution}"

    def export(self) -> Object:
        """Return what is drawn."""
        return {"distribution": self.distribution, "outputs": [self.output]}


def _tell_shape(shape: Iterable[int | str]) -> str:
    """Return a shape as the language writes it."""
    return f"[{', '.join(str(size) for size in shape)}]"

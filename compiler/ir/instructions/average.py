"""``blend`` and ``assign``: average a model into another, or copy it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from compiler.ir.instructions.base import Effect, export_operand, find_names
from compiler.ir.value import (
    Fields,
    Inputs,
    Names,
    Object,
    Operand,
    Scheduled,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend(Effect):
    """``target = decay * target + (1 - decay) * source`` over the parameters, buffers as their policy says."""

    source: str
    target: str
    decay: float | Scheduled
    averaging: tuple[tuple[str, float], ...] = ()
    """Optimizers that keep the average themselves, and how near to it the weights lie: then that is written."""
    half_life: str = ""
    """What the decay comes from, where the spec gives a half-life: ``500 updates``."""
    buffers: Literal["copy", "average", "ignore"]

    FIELDS: ClassVar[Fields] = {
        "source": str,
        "target": str,
        "decay": float | str,
        "half_life": str,
        "averaging": Names,
        "buffers": Literal["copy", "average", "ignore"],
    }

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: models are no values."""
        return ()

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the decay."""
        return (self.decay,)

    @property
    def phrase(self) -> str:
        """Return what is taken of which weights."""
        if self.averaging:
            return f"{self.target} <- average in {', '.join(f'{name}.optimizer' for name, _ in self.averaging)}"
        match self.decay:
            case Scheduled(name=name, complement=complement):
                taken = name if complement else f"1 - {name}"
            case decay:
                taken = f"{1 - decay:g}"
        return f"{self.target} <- lerp({self.target}, {self.source}, {taken})"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the half-life, where there is one, and what happens to buffers."""
        half_life = (f"half_life {self.half_life}",) if self.half_life else ()
        return half_life if self.buffers == "ignore" else (*half_life, f"buffers {self.buffers}")

    @property
    def title(self) -> str:
        """Return the kind of the op."""
        return "ema"

    def export(self) -> Object:
        """Return target and source, and how they are averaged."""
        decay = self.decay.name if isinstance(self.decay, Scheduled) else self.decay
        return {
            "source": self.source,
            "target": self.target,
            "decay": decay,
            "half_life": self.half_life,
            "averaging": [name for name, _ in self.averaging],
            "buffers": self.buffers,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(Effect):
    """Copy parameters and buffers of ``source`` into ``target``."""

    source: str
    target: str

    FIELDS: ClassVar[Fields] = {"source": str, "target": str}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: models are no values."""
        return ()

    @property
    def phrase(self) -> str:
        """Return which model becomes which."""
        return f"{self.target} <- {self.source}"

    @property
    def title(self) -> str:
        """Return the kind of the op."""
        return "copy"

    def export(self) -> Object:
        """Return which model becomes which."""
        return {"source": self.source, "target": self.target}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Effect):
    """Write a state: it becomes the operand, detached; values read before keep the old tensor."""

    state: str
    value: Operand

    FIELDS: ClassVar[Fields] = {"state": str, "inputs": Inputs}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return what it becomes, where that is a value."""
        return find_names((self.value,))

    @property
    def settings(self) -> tuple[object, ...]:
        """Return what it becomes."""
        return (self.value,)

    @property
    def phrase(self) -> str:
        """Return what the state becomes."""
        return f"{self.state} <- {export_operand(self.value)}"

    @property
    def title(self) -> str:
        """Return ``assign count``."""
        return f"assign {self.state}"

    def export(self) -> Object:
        """Return what the state becomes."""
        return {"state": self.state, "inputs": [export_operand(self.value)]}

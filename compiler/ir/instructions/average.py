"""``blend`` and ``assign``: average a model into another, or copy it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct

from compiler.ir.instructions.base import Effect, export_operand, find_names
from compiler.ir.value import (
    Fields,
    Inputs,
    Names,
    Object,
    Operand,
    Scheduled,
)

BEGINNINGS: Mapping[str, tuple[str, ...]] = {
    "initial": (),
    "first_update": ("first a copy",),
    "zeros": ("from zero, debiased",),
}
"""How an average begins, in words."""


class Progress(Struct, frozen=True, kw_only=True):
    """How the share that an average keeps depends on how often it took place before; its schedule counts writes.

    ``first`` writes of the source are counted at its first time, ``every`` at each other. ``compounds``: what all of
    these would keep is multiplied. Before the train step ``since`` it is a copy, and counts nothing.
    """

    first: int = 1
    every: int = 1
    since: int = 1
    compounds: bool = False
    begin: Literal["initial", "first_update", "zeros"] = "initial"
    taken: bool = False
    """The schedule says what is taken of the new."""
    iterations: tuple[str, ...] = ()
    """The ops that it is in all iterations of a `repeat`, which have one count; none where it is in none."""


class Blend(Effect, frozen=True, kw_only=True):
    """``target = decay * target + (1 - decay) * source`` over the parameters, buffers as their policy says."""

    source: str
    target: str
    decay: float | Scheduled
    averaging: tuple[tuple[str, float], ...] = ()
    """Optimizers that keep the average themselves, and how near to it the weights lie: then that is written."""
    half_life: str = ""
    """What the decay comes from, where the spec gives a half-life: ``500 updates``."""
    progress: Progress | None = None
    """What else the decay depends on; None where it does not matter how often it took place."""
    buffers: Literal["copy", "average", "ignore"]
    """What happens to floating-point buffers."""
    int_buffers: Literal["copy", "ignore"] = "copy"
    """What happens to the others, where there are some."""
    is_bare: bool = False
    """Its source has no buffers."""
    match: str | None = None
    """Only parameters of the source in whose names it is found are averaged."""
    exclude: str | None = None
    """Those in whose names it is found are copied."""
    dtype: Literal["", "float32", "bfloat16", "float16"] = ""
    """The type to whose numbers it is rounded; empty: that of the step."""
    rounding: Literal["nearest", "stochastic"] = "nearest"

    @property
    def counter(self) -> str:
        """Return the op under whose name it is counted how often it took place: of iterations that of the first."""
        return self.op if self.progress is None or not self.progress.iterations else self.progress.iterations[0]

    FIELDS: ClassVar[Fields] = {
        "source": str,
        "target": str,
        "decay": float | str,
        "half_life": str,
        "begin": str,
        "averaging": Names,
        "buffers": Literal["copy", "average", "ignore"],
        "int_buffers": Literal["copy", "ignore"],
        "match": str | None,
        "exclude": str | None,
        "dtype": str,
        "rounding": str,
    }

    @property
    def drawing(self) -> bool:
        """Return whether it is rounded at random."""
        return self.rounding == "stochastic"

    @property
    def moves_buffers(self) -> bool:
        """Return whether it writes some buffers, if there are some."""
        return self.buffers != "ignore" or self.int_buffers != "ignore"

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
        """Return the half-life, where there is one, how it begins, and what happens to buffers."""
        found = (f"half_life {self.half_life}",) if self.half_life else ()
        if self.progress is not None:
            found += BEGINNINGS[self.progress.begin]
            found += (f"a copy before step {self.progress.since}",) if self.progress.since > 1 else ()
        found += (f"only '{self.match}'",) if self.match else ()
        found += (f"a copy of '{self.exclude}'",) if self.exclude else ()
        found += (f"rounded to {self.dtype}, {self.rounding}",) if self.dtype else ()
        if self.is_bare:
            return found
        is_like = self.int_buffers == ("ignore" if self.buffers == "ignore" else "copy")
        apart = () if is_like else (f"other buffers {self.int_buffers}",)
        return (*found, f"buffers {self.buffers}", *apart)

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
            "begin": "initial" if self.progress is None else self.progress.begin,
            "averaging": [name for name, _ in self.averaging],
            "buffers": self.buffers,
            "int_buffers": self.int_buffers,
            "match": self.match,
            "exclude": self.exclude,
            "dtype": self.dtype,
            "rounding": self.rounding,
        }


class Assign(Effect, frozen=True, kw_only=True):
    """Copy parameters and buffers of ``source`` into ``target``."""

    source: str
    target: str
    moves_buffers: bool = True
    """Buffers are copied, too, if there are some."""

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


class Store(Effect, frozen=True, kw_only=True):
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

"""``transform``: map gradient sets to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from compiler.instructions.base import Commit, InstructionBase, Resting, find_verdicts, tell_unless
from compiler.instructions.wording import tell_options
from compiler.operands import FunctionRef, Setting
from compiler.penalty import Penalty
from compiler.published import NAMES, TEXT, Object
from compiler.terms import tell_penalty


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(InstructionBase):
    """Map gradient sets to one gradient set over the same models."""

    function: FunctionRef
    inputs: tuple[str, ...]
    output: str
    models: tuple[str, ...]
    options: Mapping[str, Setting] = field(default_factory=dict[str, "Setting"])
    weights: bool = False
    """It is given the parameters of ``models`` as well, as they are when it runs; for gradients they are constants."""
    draws: bool = False
    """It draws random numbers, keyed by this op."""
    gaps: bool = False
    """Some gradients of its sets may be absent. ``require`` refuses that, ``fill`` puts zeros there."""
    spans: tuple[tuple[str, ...], ...] = ()
    """Of ``share``, which adds to the first of its sets what the others have for the same parameters: their models."""
    penalties: tuple[Penalty, ...] = ()
    """``regularize`` adds the slopes of these, at the weights as they are when it runs; all are of one model."""
    unless: Commit = ()
    """``regularize`` adds nothing where this holds: an earlier update of the model is applied, and adds them."""
    resting: Resting = ()
    """``require``, ``fill`` and ``regularize`` leave alone that these parameters, frozen for now, have no gradient."""

    FIELDS: ClassVar[Object] = {"function": TEXT, "inputs": NAMES, "penalties": NAMES, "outputs": NAMES}

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the set."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the sets that it is made of, and the verdicts on which it depends."""
        return (*self.inputs, *find_verdicts(self.unless))

    @property
    def recorded(self) -> bool:
        """Return that the set carries the graphs of those that it is made of."""
        return True

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the options, and the numbers of the penalties."""
        return (*self.options.values(), *(number for each in self.penalties for number in (each.l1, each.l2)))

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the function, where it is a user's, and those of penalties."""
        return (
            *(() if self.function.builtin else (self.function.name,)),
            *(each.function for each in self.penalties if each.function is not None),
        )

    @property
    def drawing(self) -> bool:
        """Return whether the function draws."""
        return self.draws

    @property
    def phrase(self) -> str:
        """Return the call of the function."""
        name = self.function.name.split(":")[-1]
        used = ", ".join((*self.inputs, *map(tell_penalty, self.penalties)))
        return f"{self.output} = {name}({used}{tell_options(self.options)})"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return where it adds nothing."""
        return tell_unless(self.unless)

    @property
    def title(self) -> str:
        """Return ``transform clip_norm``."""
        return f"transform {self.function.name}"

    def export(self) -> Object:
        """Return the call."""
        return {
            "function": self.function.name,
            "inputs": list(self.inputs),
            "penalties": [tell_penalty(each) for each in self.penalties],
            "outputs": [self.output],
        }

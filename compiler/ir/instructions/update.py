"""``apply``: step the parameters of models."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from compiler.ir.instructions.base import Effect
from compiler.ir.value import (
    Fields,
    Names,
    Object,
)
from compiler.ir.weight_terms import Projection, format_projection


class ApplyPart(Struct, frozen=True, kw_only=True):
    """One optimizer's share of an update: ``optimizer`` steps ``models`` on their part of the set ``gradients``.

    ``covers`` are the models the set spans, in order; the part is the whole set where ``covers == models``.
    """

    optimizer: str
    models: tuple[str, ...]
    gradients: str
    covers: tuple[str, ...]
    may_miss: bool = False
    """Some gradients may be absent: nothing changes of those parameters, their slots included."""
    excluded: tuple[str, ...] = ()
    """Models whose parameters another update steps: what they share with these is left out."""
    is_divided: bool = False
    """Other parts step some parameters of the models: groups have optimizers of their own."""


class Apply(Effect, frozen=True, kw_only=True):
    """Write the next version of the models' parameters: one optimizer step per part."""

    parts: tuple[ApplyPart, ...]
    projections: tuple[Projection, ...] = ()
    """The constraints that are then applied to the parameters, in order."""

    FIELDS: ClassVar[Fields] = {"optimizers": Names, "inputs": Names, "constraints": Names}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the set of every part."""
        return tuple(part.gradients for part in self.parts)

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the numbers of the constraints."""
        return tuple(number for each in self.projections for number in (each.low, each.high))

    @property
    def functions(self) -> tuple[str, ...]:
        """Return those of constraints."""
        return tuple(each.function for each in self.projections if each.function)

    @property
    def phrase(self) -> str:
        """Return which optimizers step which models, and the constraints that follow."""
        steps = (f"{', '.join(part.models)} <- {part.optimizer}.optimizer({part.gradients})" for part in self.parts)
        return "; ".join((*steps, *map(format_projection, self.projections)))

    @property
    def title(self) -> str:
        """Return the kind of the op."""
        return "update"

    def export(self) -> Object:
        """Return the optimizers, their sets, and the constraints that follow."""
        return {
            "optimizers": [part.optimizer for part in self.parts],
            "inputs": [*dict.fromkeys(self.operands)],
            "constraints": [format_projection(each) for each in self.projections],
        }

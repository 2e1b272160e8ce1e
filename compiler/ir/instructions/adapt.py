"""``adapt``: make weights that are a value."""

from __future__ import annotations

from typing import ClassVar

from compiler.ir.instructions.base import InstructionBase, export_operand, find_refs
from compiler.ir.value import Fields, Names, Object, Operand, Ref


class Adapt(InstructionBase, frozen=True, kw_only=True):
    """Define weights: those of a model, or of a derived one, minus rates times a gradient set over the model."""

    model: str
    """The model whose parameters the weights are in place of."""
    base: Ref | None
    """The derived model that it begins with; None: the parameters themselves."""
    gradients: Ref
    rate: Operand
    """What the gradients are multiplied with, of all parameters that no group has."""
    groups: tuple[tuple[str, Operand], ...] = ()
    """Patterns of names with other rates; the first that is found counts."""
    output: str
    graph: bool = False
    """Other gradients run back through it."""

    FIELDS: ClassVar[Fields] = {
        "model": str,
        "base": str | None,
        "gradients": str,
        "rate": str | float,
        "groups": dict[str, str | float],
        "outputs": Names,
        "graph": bool,
    }

    @property
    def chosen(self) -> tuple[tuple[str, str], ...]:
        """Return the parameters with rates of their own."""
        return tuple((self.model, match) for match, _ in self.groups)

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the weights."""
        return (self.output,)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Return the weights that it begins with, the gradients, and the rates that are values."""
        return find_refs((self.base, self.gradients, self.rate, *(rate for _, rate in self.groups)))

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the names of these values."""
        return tuple(dict.fromkeys(each.name for each in self.refs))

    @property
    def recorded(self) -> bool:
        """Return whether a graph of the weights is kept."""
        return self.graph

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the rates."""
        return (self.rate, *(rate for _, rate in self.groups))

    @property
    def phrase(self) -> str:
        """Return the step: ``fast = net - 0.1 * fast.gradient``."""
        base, rate = self.model if self.base is None else self.base.name, export_operand(self.rate)
        others = "".join(f", {export_operand(rate)} for '{match}'" for match, rate in self.groups)
        step = f"- {rate}"
        if isinstance(rate, float) and rate < 0 and not others:  # as sharpness-aware minimization goes up
            step = f"+ {-rate}"
        return f"{self.output} = {base} {step} * {self.gradients.name}{others}"

    def export(self) -> Object:
        """Return what the weights are made of."""
        return {
            "model": self.model,
            "base": None if self.base is None else self.base.name,
            "gradients": self.gradients.name,
            "rate": export_operand(self.rate),
            "groups": {match: export_operand(rate) for match, rate in self.groups},
            "outputs": [self.output],
            "graph": self.graph,
        }

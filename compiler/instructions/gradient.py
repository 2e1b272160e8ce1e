"""``gradient``: differentiate a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from compiler.instructions.base import InstructionBase, Resting
from compiler.instructions.wording import find_names, tell_resting, tell_set
from compiler.operands import Operand
from compiler.published import FLAG, NAMES, TEXT, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A model whose forwards run again when a gradient is taken through them: in training or not.

    ``kept``: they write its buffers then, which already have what the forwards wrote the first time.
    """

    model: str
    train: bool
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(InstructionBase):
    """Differentiate ``loss`` with respect to all parameters of ``models`` and to ``values``.

    ``output`` names the gradient set (a flat tuple over the parameters of ``models``, in order); ``value_outputs``
    name the gradients of ``values``, in order.
    """

    loss: str
    models: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    output: str | None = None
    value_outputs: tuple[str, ...] = ()
    grad_outputs: tuple[Operand, ...] = ()
    retain_graph: bool = False
    create_graph: bool = False
    scaled: bool = False
    """The loss is multiplied by the loss scale, and every gradient divided by it again."""
    unconnected: Literal["error", "skip", "zero"] = "error"
    resting: Resting = ()
    """No gradient is taken for these parameters, which are frozen for now."""
    asleep: tuple[str, ...] = ()
    """Models that are frozen whole for now: the gradient runs back to none of them."""
    recomputed: tuple[Recomputed, ...] = ()
    """The models of which it runs forwards again."""
    term: str = ""
    """Of a loss whose terms count differently: the one that it is about."""

    FIELDS: ClassVar[Object] = {
        "loss": TEXT,
        "targets": NAMES,
        "outputs": NAMES,
        "retain_graph": FLAG,
        "create_graph": FLAG,
        "scaled": FLAG,
        "frozen": NAMES,
    }

    @property
    def key(self) -> str:
        """Return what tells it from those of other terms, and of other micro-batches."""
        key = f"{self.op}.{self.term}" if self.term else self.op
        return f"{key}#{self.part}" if self.part else key

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the gradient set, and the gradients of values."""
        return (*(() if self.output is None else (self.output,)), *self.value_outputs)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the loss, the values that it is differentiated by, and what the gradient begins with."""
        return (self.loss, *self.values, *find_names(self.grad_outputs))

    @property
    def recorded(self) -> bool:
        """Return whether it can be differentiated again."""
        return self.create_graph

    @property
    def settings(self) -> tuple[object, ...]:
        """Return what the gradient begins with."""
        return self.grad_outputs

    @property
    def phrase(self) -> str:
        """Return what is differentiated by what."""
        targets = ", ".join((*self.models, *self.values))
        return f"{', '.join(self.defines)} = gradient of {self.loss} for {targets}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what becomes of the graph, and what it leaves out."""
        named = {"retain_graph": self.retain_graph, "create_graph": self.create_graph, "scaled": self.scaled}
        return (*tell_set(named), *dict.fromkeys(f"without {tell_resting(each)}" for each in self.resting))

    def export(self) -> Object:
        """Return what is differentiated by what, and how."""
        return {
            "loss": self.loss,
            "targets": [*self.models, *self.values],
            "outputs": [*self.defines],
            "retain_graph": self.retain_graph,
            "create_graph": self.create_graph,
            "scaled": self.scaled,
            "frozen": [tell_resting(each) for each in self.resting],
        }

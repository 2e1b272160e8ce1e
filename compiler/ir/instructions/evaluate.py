"""``evaluate``: evaluate a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from compiler.ir.instructions.base import (
    InstructionBase,
    export_detached,
    export_inputs,
    export_options,
    find_names,
    find_refs,
    format_arguments,
    format_options,
)
from compiler.ir.value import (
    Argument,
    Fields,
    FunctionRef,
    Inputs,
    Names,
    Object,
    Options,
    Ref,
    Scheduled,
    Setting,
    Shape,
)
from compiler.ir.weight_terms import format_number

Counted: TypeAlias = Literal["", "kept", "elements", "returned", "assumed", "asked"]
"""How a loss counts on its own: not at all, the elements that it does not leave out, as it returns
(sum, count), perhaps so (else its rows count), or that is what is to be found out."""

MASKS = frozenset(
    ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not")
)
"""Built-in calls whose results are truth values."""
CONSTANT_CALLS = MASKS | {"stop", "argmax", "one_hot"}
"""Built-in calls whose results never carry a graph."""


class Evaluate(InstructionBase, frozen=True, kw_only=True):
    """Evaluate a pure function: a call, a loss, a metric."""

    family: Literal["call", "loss", "metric", "internal"]
    """``internal``: functions for micro-batches and counts: parts, shares, weigh, quotient, inverse."""
    expr: str = ""
    """The value of the expression of which it is a part; empty where it is an op of its own."""
    into: str = ""
    """The value of its expression in whose line it is written; empty where it has a line of its own."""
    function: FunctionRef
    arguments: tuple[Argument, ...]
    options: Mapping[str, Setting] = {}
    outputs: tuple[str, ...] = ()
    weight: float | Scheduled | None = None
    reduction: str | None = None
    times: int = 1
    """How often a loss counts: one that runs at every n-th step only, n times."""
    gathered: bool = False
    """Its batches are combined over several steps by their rows: a loss with a count of its own does not fit."""
    counted: Counted = ""
    """``outputs`` are its sum and its count; of ``asked`` a tensor with as many elements as it returns pieces."""
    open: bool = False
    """Of a loss: only the running step can check that the shapes of its operands match."""
    graph: bool = False
    reset: Literal["epoch", "never", "step"] | int = "step"
    """When the running value of a metric starts anew, or after how many steps; ``step``: it is no running value.

    A running value is sum(value * rows) / sum(rows) over the batches since then, rows being those of the first input; a
    user's object or class with ``update``, ``compute`` and ``reset`` counts by itself.
    """

    FIELDS: ClassVar[Fields] = {
        "function": str,
        "inputs": Inputs,
        "options": Options,
        "weight": float | str | None,
        "outputs": Names,
        "graph": bool,
        "detached": Names,
        "into": str,
    }

    @property
    def defines(self) -> tuple[str, ...]:
        """Return its results."""
        return self.outputs

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the values among its arguments."""
        return find_names(each.operand for each in self.arguments)

    @property
    def has_line(self) -> bool:
        """Return whether it is not written into the line of another."""
        return not self.into

    @property
    def constant(self) -> bool:
        """Return whether its results are constants for every gradient."""
        return self.function.builtin and self.function.name in CONSTANT_CALLS

    @property
    def recorded(self) -> bool:
        """Return whether it is recorded and its results are no constants."""
        return self.graph and not self.constant

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Return the values among its arguments."""
        return find_refs(each.operand for each in self.arguments)

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the weight, the options and the operands."""
        return (self.weight, *self.options.values(), *(each.operand for each in self.arguments))

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the function, where it is a user's."""
        return () if self.function.builtin else (self.function.name,)

    @property
    def phrase(self) -> str:
        """Return the call of the function, and the weight of its result."""
        name = self.function.name.split(":")[-1]
        call = f"{name}({format_arguments(self.arguments)}{format_options(self.options)})"
        weight = "" if self.weight is None else f"{format_number(self.weight)} * "
        times = "" if self.times == 1 else f"{self.times} * "
        return f"{', '.join(self.outputs)} = {times}{weight}{call}"

    @property
    def title(self) -> str:
        """Return ``loss mse``."""
        return f"{self.family} {self.function.name}"

    def export(self) -> Object:
        """Return the call."""
        return {
            "function": self.function.name,
            "inputs": export_inputs(self.arguments),
            "options": export_options(self.options),
            "weight": self.weight.name if isinstance(self.weight, Scheduled) else self.weight,
            "outputs": list(self.outputs),
            "graph": self.graph,
            "detached": export_detached(self.arguments),
            "into": self.into,
        }


class Random(InstructionBase, frozen=True, kw_only=True):
    """Draw a keyed random tensor; ``batch`` in the shape is the leading size of the step's inputs."""

    distribution: str
    output: str
    shape: Shape | None = None
    like: str | None = None
    options: Mapping[str, Setting] = {}
    gathered: bool = False
    """``like`` is one micro-batch of what is meant: it has another number of rows."""

    FIELDS: ClassVar[Fields] = {
        "distribution": str,
        "shape": list[int | str] | None,
        "like": str | None,
        "options": Options,
        "outputs": Names,
    }

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
        """Return the distribution, the size, and the options."""
        size = f"like {self.like}" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.output} ~ {self.distribution} {size}{format_options(self.options)}"

    @property
    def title(self) -> str:
        """Return ``random normal``."""
        return f"random {self.distribution}"

    def export(self) -> Object:
        """Return what is drawn."""
        return {
            "distribution": self.distribution,
            "shape": None if self.shape is None else [*self.shape],
            "like": self.like,
            "options": export_options(self.options),
            "outputs": [self.output],
        }


class Schedule(InstructionBase, frozen=True, kw_only=True):
    """Give the number of a schedule as a value without axes, of the type of the step."""

    output: str
    number: Scheduled

    FIELDS: ClassVar[Fields] = {"outputs": Names}

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the number."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: it reads its clock alone."""
        return ()

    @property
    def recorded(self) -> bool:
        """Return that the number is a constant."""
        return False

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the number."""
        return (self.number,)

    @property
    def phrase(self) -> str:
        """Return the schedule of the number."""
        return f"{self.output} = {self.number.schedule.kind} schedule"

    @property
    def title(self) -> str:
        """Return ``schedule linear``."""
        return f"schedule {self.number.schedule.kind}"

    def export(self) -> Object:
        """Return the value."""
        return {"outputs": [self.output]}

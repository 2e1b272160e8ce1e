"""``forward``: call a model."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec.structs import replace

from compiler.ir.instructions.base import (
    InstructionBase,
    export_detached,
    export_inputs,
    find_refs,
    format_arguments,
    list_set,
)
from compiler.ir.value import (
    Argument,
    Fields,
    Inputs,
    Names,
    Object,
    Ref,
)
from graphspec.declare.precision import Compute


class Forward(InstructionBase, frozen=True, kw_only=True):
    """Call a model; ``outputs`` are its results in order, ``taps`` are (value, layer path) of inner layers."""

    model: str
    weights: Ref | None = None
    """The weights that it runs with, a value; None: the parameters of the model."""
    arguments: tuple[Argument, ...]
    outputs: tuple[str, ...]
    named: bool = False
    """The spec names the results: the model may return them by name."""
    taps: tuple[tuple[str, str], ...] = ()
    method: str | None = None
    train: bool = False
    graph: bool = False
    """Record for differentiation. Where False the call runs without a graph (no_grad)."""
    frozen: bool = False
    """The graph is needed, but no gradient of the model's own weights."""
    kept: bool = False
    """The weights of a sharded model stay gathered after it."""
    snapshot: Literal["none", "buffers", "all"] = "none"
    """Run on clones of the buffers, or of weights and buffers, so that later writes need not wait."""
    checkpoint: bool = False
    """Its activations are not kept: a gradient through it recomputes it."""
    draws: bool = False
    """The model draws random numbers in this call: key them by this op."""
    begun: tuple[str, ...] = ()
    """Taps from which gradients of other results are taken: a graph begins there at the latest."""
    compute: Compute = "float32"
    """The dtype of its matrix products and convolutions; their results are float32 again."""
    joined: tuple[str, ...] = ()
    """The ops whose calls it makes in one, on the rows of all; every argument and output is of one of them. None: its
    own alone."""

    FIELDS: ClassVar[Fields] = {
        "model": str,
        "weights": str | None,
        "inputs": Inputs,
        "outputs": Names,
        "train": bool,
        "graph": bool,
        "frozen": bool,
        "snapshot": Literal["none", "buffers", "all"],
        "checkpoint": bool,
        "compute": Compute,
        "joined": Names,
        "detached": Names,
    }

    @property
    def defines(self) -> tuple[str, ...]:
        """Return its results, and those of inner layers."""
        return (*self.outputs, *(value for value, _ in self.taps if value not in self.outputs))

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the names of these values."""
        return tuple(each.name for each in self.refs)

    @property
    def recorded(self) -> bool:
        """Return whether it is recorded and its results are no constants."""
        return self.graph and not self.stop

    @property
    def stop(self) -> bool:
        """Return whether the results are constants for every gradient."""
        return not self.differentiable

    @property
    def called(self) -> str:
        """Return the model."""
        return self.model

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Return the weights, where they are a value, and the values among its arguments."""
        return find_refs((self.weights, *(each.operand for each in self.arguments)))

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the operands."""
        return tuple(each.operand for each in self.arguments)

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the ops whose calls it makes."""
        return self.joined or (self.op,)

    @property
    def apart(self) -> tuple[Forward, ...]:
        """Return the calls that it makes, each as a forward of its own."""
        if not self.joined:
            return (self,)
        calls = zip(self.joined, self.arguments, self.outputs, strict=True)
        return tuple(
            replace(self, op=op, arguments=(argument,), outputs=(output,), joined=()) for op, argument, output in calls
        )

    @property
    def drawing(self) -> bool:
        """Return whether the model's layers draw."""
        return self.draws

    @property
    def phrase(self) -> str:
        """Return the call: ``fake = generator(z)``."""
        method = f".{self.method}" if self.method else ""
        results = (*self.outputs, *(value for value, _ in self.taps))
        callee = self.model if self.weights is None else self.weights.name
        given = format_arguments(self.arguments)
        return f"{', '.join(results)} = {callee}{method}({f'concat({given})' if self.joined else given})"

    @property
    def title(self) -> str:
        """Return ``forward net``."""
        return f"forward {self.model}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the mode, and what happens to the graph."""
        return list_set(
            {
                "train": self.train,
                "no_grad": not self.graph,
                "frozen": self.frozen,
                "reads clones": self.snapshot == "all",
                "reads clones of buffers": self.snapshot == "buffers",
                "checkpoint": self.checkpoint,
                f"makes {len(self.joined)} calls": bool(self.joined),
                "stop": self.stop,
                f"computes in {self.compute}": self.compute != "float32",
            }
        )

    def export(self) -> Object:
        """Return the call, and how it runs."""
        return {
            "model": self.model,
            "weights": None if self.weights is None else self.weights.name,
            "inputs": export_inputs(self.arguments),
            "outputs": [*self.outputs, *(value for value, _ in self.taps)],
            "train": self.train,
            "graph": self.graph,
            "frozen": self.frozen,
            "snapshot": self.snapshot,
            "checkpoint": self.checkpoint,
            "compute": self.compute,
            "joined": [*self.joined],
            "detached": export_detached(self.arguments),
        }

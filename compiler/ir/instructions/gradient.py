"""``gradient``: differentiate a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct

from compiler.ir.cell import Cell
from compiler.ir.instructions.base import (
    Commit,
    Frozen,
    InstructionBase,
    export_options,
    find_names,
    find_verdicts,
    format_frozen,
    format_options,
    list_set,
    list_unless,
)
from compiler.ir.value import (
    Derivative,
    Fields,
    FunctionRef,
    Names,
    Object,
    Operand,
    Options,
    Setting,
)
from compiler.ir.weight_terms import Penalty, format_penalty


class Recomputed(Struct, frozen=True, kw_only=True):
    """A model whose forwards run again when a gradient is taken through them: in training or not.

    ``kept``: they write its buffers then, which already have what the forwards wrote the first time.
    """

    model: str
    train: bool
    kept: bool


class Gradient(InstructionBase, frozen=True, kw_only=True):
    """Differentiate ``loss`` with respect to all parameters of ``models`` and to ``values``.

    ``output`` names the gradient set (a flat tuple over the parameters of ``models``, in order); ``value_outputs``
    name the gradients of ``values``, in order.
    """

    loss: str
    models: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    cells: frozenset[Cell] = frozenset()
    """Where the parameters of ``models`` live, frozen ones left out."""
    weights: str | None = None
    """The derived model for whose weights the gradient is taken, in place of the parameters of its model."""
    output: str | None = None
    value_outputs: tuple[str, ...] = ()
    grad_outputs: tuple[Operand, ...] = ()
    retain_graph: bool = False
    create_graph: bool = False
    scaled: bool = False
    """The loss is multiplied by the loss scale, and every gradient divided by it again."""
    unconnected: Literal["error", "skip", "zero"] = "error"
    frozen: Frozen = ()
    """No gradient is taken for these parameters, which are currently frozen."""
    fully_frozen: tuple[str, ...] = ()
    """Models of which nothing is trained at present: no gradient flows back to them."""
    recomputed: tuple[Recomputed, ...] = ()
    """The models whose forwards it recomputes."""
    term: str = ""
    """Of a loss whose terms count differently: the one that it is about."""
    joined: tuple[str, ...] = ()
    """The ops whose gradients it gives in one; each takes its part. None: its own alone."""

    FIELDS: ClassVar[Fields] = {
        "loss": str,
        "targets": Names,
        "outputs": Names,
        "retain_graph": bool,
        "create_graph": bool,
        "scaled": bool,
        "frozen": Names,
        "joined": Names,
    }

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the ops whose gradients it gives."""
        return self.joined or (self.op,)

    @property
    def derivative(self) -> Derivative:
        """Return what it differentiates; models of which nothing is trained at present are left out."""
        models = self.models if self.weights is None else ()
        if self.fully_frozen:
            models = tuple(model for model in models if model not in self.fully_frozen)
        return Derivative(loss=self.loss, models=models, cells=self.cells, values=self.target_values)

    @property
    def target_values(self) -> tuple[str, ...]:
        """Return what it is differentiated by that is a value: weights of a derived model first."""
        return (*(() if self.weights is None else (self.weights,)), *self.values)

    @property
    def key(self) -> str:
        """Return a key that is unique over the op's terms and micro-batches."""
        key = f"{self.op}.{self.term}" if self.term else self.op
        return f"{key}#{self.micro_batch}" if self.micro_batch else key

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the gradient set, and the gradients of values."""
        return (*(() if self.output is None else (self.output,)), *self.value_outputs)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the loss, the values that it is differentiated by, and what the gradient begins with."""
        return (self.loss, *self.target_values, *find_names(self.grad_outputs))

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
        targets = ", ".join(self._targets)
        return f"{', '.join(self.defines)} = gradient of {self.loss} for {targets}"

    @property
    def _targets(self) -> tuple[str, ...]:
        return (*(() if self.weights is not None else self.models), *self.target_values)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what happens to the graph, and the parameters it leaves out."""
        named = {
            "retain_graph": self.retain_graph,
            "create_graph": self.create_graph,
            "loss scaled, result unscaled": self.scaled,
            f"gives {len(self.joined)} gradients": bool(self.joined),
        }
        return (*list_set(named), *dict.fromkeys(f"without {format_frozen(each)}" for each in self.frozen))

    def export(self) -> Object:
        """Return what is differentiated by what, and how."""
        return {
            "loss": self.loss,
            "targets": [*self._targets],
            "outputs": [*self.defines],
            "retain_graph": self.retain_graph,
            "create_graph": self.create_graph,
            "scaled": self.scaled,
            "frozen": [format_frozen(each) for each in self.frozen],
            "joined": [*self.joined],
        }


class Transform(InstructionBase, frozen=True, kw_only=True):
    """Map gradient sets to one gradient set over the same models."""

    function: FunctionRef
    inputs: tuple[str, ...]
    output: str
    models: tuple[str, ...]
    options: Mapping[str, Setting] = {}
    weights: bool = False
    """It is given the parameters of ``models`` as well, as they are when it runs; for gradients they are constants."""
    draws: bool = False
    """It draws random numbers, keyed by this op."""
    may_miss: bool = False
    """Some gradients of its sets may be absent. ``require`` refuses that, ``fill`` puts zeros there."""
    spans: tuple[tuple[str, ...], ...] = ()
    """Of ``share``, which adds to the first of its sets what the others have for the same parameters: their models."""
    covers: tuple[str, ...] = ()
    """Of ``part``, which takes out of a set what it has for ``models``, times a ``factor``: the models of that set."""
    penalties: tuple[Penalty, ...] = ()
    """``regularize`` adds the slopes of these, at the weights as they are when it runs; all are of one model."""
    unless: Commit = ()
    """``regularize`` adds nothing where this holds: an earlier update of the model is applied, and adds them."""
    frozen: Frozen = ()
    """``require``, ``fill`` and ``regularize`` ignore that these parameters, currently frozen, have no gradient."""
    is_sharded: bool = False
    """It acts on the shards of sets: the parts that belong to the weights that this process keeps."""

    FIELDS: ClassVar[Fields] = {
        "function": str,
        "inputs": Names,
        "options": Options,
        "penalties": Names,
        "outputs": Names,
    }

    @property
    def penalizes(self) -> str | None:
        """Return the model of the penalties."""
        return self.penalties[0].model if self.penalties else None

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the set."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the sets that it reads, and the verdicts on which it depends."""
        return (*self.inputs, *self.skipped_by)

    @property
    def skipped_by(self) -> tuple[str, ...]:
        """Return the verdicts under which it adds no penalties."""
        return find_verdicts(self.unless)

    @property
    def recorded(self) -> bool:
        """Return True: the set carries the graphs of its inputs."""
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
        models = self.models if self.covers else ()
        used = ", ".join((*self.inputs, *models, *map(format_penalty, self.penalties)))
        return f"{self.output} = {name}({used}{format_options(self.options)})"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return where it adds nothing."""
        return list_unless(self.unless)

    @property
    def title(self) -> str:
        """Return ``transform clip_norm``."""
        return f"transform {self.function.name}"

    def export(self) -> Object:
        """Return the call."""
        return {
            "function": self.function.name,
            "inputs": list(self.inputs),
            "options": export_options(self.options),
            "penalties": [format_penalty(each) for each in self.penalties],
            "outputs": [self.output],
        }

"""The program: everything a backend is told, as frozen data.

A :class:`Program` holds declarations (inputs, models, optimizers, gates) and one straight-line :class:`Function` per
mode and set of ops that fire together. Backends match over :data:`Instruction` and read nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Plain: TypeAlias = None | bool | int | float | str | tuple["Plain", ...] | Mapping[str, "Plain"]
Dimension: TypeAlias = int | str
"""A size, or the name of a free dimension such as ``batch``."""
Shape: TypeAlias = tuple[Dimension, ...]
Mode: TypeAlias = Literal["train", "eval", "test", "infer"]


# ---------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A value read by name; ``detach`` when no gradient may flow back through this use."""

    name: str
    detach: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A literal number or boolean written in the spec."""

    value: bool | int | float


Operand: TypeAlias = Ref | Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a call: positional if ``name`` is None, else by keyword."""

    operand: Operand
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRef:
    """A function: one of the library by its name, or a user's ``pkg.mod:fn``."""

    name: str
    builtin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CellVersion:
    """A cell (``generator.params``, ``generator.buffers``, ``generator.optimizer``) at a version of this step."""

    cell: str
    version: int

    def __str__(self) -> str:
        """Return ``cell@version``."""
        return f"{self.cell}@{self.version}"


# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionBase:
    """What every instruction carries: its op, its place in the spec, the cells it touches, and notes for the reader."""

    op: str
    place: str = ""
    reads: tuple[CellVersion, ...] = ()
    writes: tuple[CellVersion, ...] = ()
    notes: tuple[str, ...] = ()
    """Short sentences a backend prints as comments, e.g. why an update stands where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward(InstructionBase):
    """Call a model; ``outputs`` are its results in order, ``taps`` are (value, layer path) of inner layers."""

    model: str
    arguments: tuple[Argument, ...]
    outputs: tuple[str, ...]
    taps: tuple[tuple[str, str], ...] = ()
    method: str | None = None
    train: bool = False
    graph: bool = False
    """Record for differentiation. Where False the call runs without a graph (no_grad)."""
    frozen: bool = False
    """The graph is needed, but no gradient of the model's own weights."""
    snapshot: Literal["none", "buffers", "all"] = "none"
    """Run on clones of the buffers, or of weights and buffers, so that later writes need not wait."""
    draws: bool = False
    """The model draws random numbers in this call: key them by this op."""
    stop: bool = False
    """The results are constants for every gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(InstructionBase):
    """Evaluate a pure function: a call, a loss, a metric."""

    family: Literal["call", "loss", "metric"]
    function: FunctionRef
    arguments: tuple[Argument, ...]
    options: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])
    outputs: tuple[str, ...] = ()
    weight: float | None = None
    reduction: str | None = None
    graph: bool = False
    reset: Literal["epoch", "never", "step"] | int = "step"
    """When the running value of a metric starts anew, or after how many steps; ``step``: it is no running value.

    A running value is sum(value * rows) / sum(rows) over the batches since then, rows being those of the first input; a
    user's object or class with ``update``, ``compute`` and ``reset`` counts by itself.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Random(InstructionBase):
    """Draw a keyed random tensor; ``batch`` in the shape is the leading size of the step's inputs."""

    distribution: str
    output: str
    shape: Shape | None = None
    like: str | None = None
    options: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])


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
    unconnected: Literal["error", "skip", "zero"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(InstructionBase):
    """Map gradient sets to one gradient set over the same models."""

    function: FunctionRef
    inputs: tuple[str, ...]
    output: str
    models: tuple[str, ...]
    options: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPart:
    """One optimizer's share of an update: ``optimizer`` steps ``models`` on their part of the set ``gradients``.

    ``covers`` are the models the set spans, in order; the part is the whole set where ``covers == models``.
    """

    optimizer: str
    models: tuple[str, ...]
    gradients: str
    covers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(InstructionBase):
    """Write the next version of the models' parameters: one optimizer step per part."""

    parts: tuple[ApplyPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend(InstructionBase):
    """``target = decay * target + (1 - decay) * source`` over the parameters, buffers as their policy says."""

    source: str
    target: str
    decay: float
    buffers: Literal["copy", "average", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(InstructionBase):
    """Copy parameters and buffers of ``source`` into ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(InstructionBase):
    """Forget values after their last use (``op`` is the op of that last use)."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit(InstructionBase):
    """Return the named values, detached, as the step's outputs."""

    values: tuple[str, ...]


Instruction: TypeAlias = Forward | Evaluate | Random | Gradient | Transform | Apply | Blend | Assign | Release | Emit


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDecl:
    """A tensor the caller passes in the batch; ``shape`` is None where the spec leaves it open."""

    name: str
    shape: Shape | None
    dtype: str
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Initializer:
    """How a tensor starts: zeros, ones, constant (= bound), uniform (+-bound) or normal (std = bound)."""

    kind: Literal["zeros", "ones", "constant", "uniform", "normal"]
    bound: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDecl:
    """A named parameter or buffer of a model whose structure is known: ``0.weight``, [64, 32], uniform(+-0.18)."""

    name: str
    shape: tuple[int, ...]
    initializer: Initializer
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDecl:
    """A built-in layer with every option resolved, input sizes included; ``layers`` are the children of containers.

    ``path`` is its name in the model (``0``, ``2.1``): the prefix of its parameters' names.
    """

    kind: str
    path: str
    options: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])
    layers: tuple[LayerDecl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDecl:
    """A model: a user's class, built-in layers, a single parameter, or the likeness of another (``like``)."""

    name: str
    kind: Literal["class", "layers", "parameter"]
    class_path: str | None = None
    args: Mapping[str, Plain] = field(default_factory=dict[str, "Plain"])
    layers: tuple[LayerDecl, ...] = ()
    parameters: tuple[TensorDecl, ...] = ()
    buffers: tuple[TensorDecl, ...] = ()
    like: str | None = None
    """The model whose structure this one has; always declared before it."""
    initial: Literal["own", "copy"] = "own"
    """``copy``: starts with the weights and buffers of ``like``; ``own``: drawn under its own name."""
    tied: tuple[str, ...] = ()
    """Other models with which it shares parameters."""
    trained: bool = False
    """Some update writes its parameters (in any mode)."""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDecl:
    """A number that changes while training: a curve of n, its lengths in ticks of the clock that counts n.

    ``updates``: the updates that its optimizer has applied; ``steps``: the train steps before this one; ``samples``:
    those steps times ``pace`` (the samples of one); ``epochs``: those steps divided by ``pace`` (the steps of one) and
    rounded down. At the first use n is 0.
    """

    kind: str
    fields: Mapping[str, float] = field(default_factory=dict[str, float])
    clock: Literal["updates", "steps", "samples", "epochs"] = "updates"
    pace: int = 1
    values: tuple[float, ...] = ()
    """piecewise: the first value, then one from each of ``moments`` on."""
    parts: tuple[ScheduleDecl, ...] = ()
    """join: the first part, then one from each of ``moments`` on, where its own n is 0."""
    moments: tuple[int, ...] = ()
    """Rising, all greater than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerDecl:
    """An optimizer cell: its rule, hyper-parameters with every default resolved, and the models it steps, in order."""

    name: str
    rule: str
    """A built-in name (``adam``) or a user's ``pkg.mod:Class``."""
    builtin: bool
    models: tuple[str, ...]
    options: Mapping[str, Plain | ScheduleDecl]
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """When an op of a mode fires. Ops without a gate fire in every step of their mode (or never, where dead).

    ``clock == "steps"``: at ``start``, ``start + every``, ... up to ``until`` (1-based, inclusive; without ``start``
    at ``every``, ``2 * every``, ...). ``clock == "writes"``: counts the steps in which every group of ``follows`` has
    an op that fired, within ``start`` and ``until`` (step numbers), and fires at every ``every``-th of them; with a
    ``start`` at the first counted one and then at every ``every``-th. ``clock == "averaged"``: from the first time on
    that the op fired in a mode in which it has another gate.
    """

    op: str
    clock: Literal["steps", "writes", "averaged"] = "steps"
    every: int = 1
    start: int | None = None
    until: int | None = None
    follows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One straight-line program: the instructions of a mode for one set of gated ops that fire together."""

    mode: Mode
    name: str
    active: tuple[str, ...]
    """Every update, ema and copy that fires in it, in listed order (what a reader wants to see)."""
    gated: tuple[str, ...]
    """The gated ops (see :class:`Gate`) that fire; the key by which a step picks its function."""
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeProgram:
    """All functions of one mode, and the gates that choose between them (in evaluation order)."""

    mode: Mode
    gates: tuple[Gate, ...]
    functions: tuple[Function, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled step for a backend."""

    name: str
    backend: str
    order: str
    seed: int
    rng: Literal["native", "portable"]
    inputs: tuple[InputDecl, ...]
    models: tuple[ModelDecl, ...]
    optimizers: tuple[OptimizerDecl, ...]
    modes: tuple[ModeProgram, ...]

    def mode(self, name: str) -> ModeProgram:
        """Return the program of a mode; raise KeyError where the spec has none."""
        return next(mode for mode in self.modes if mode.mode == name)

    def model(self, name: str) -> ModelDecl:
        """Return a model's declaration by name; raise StopIteration where there is none."""
        return next(model for model in self.models if model.name == name)

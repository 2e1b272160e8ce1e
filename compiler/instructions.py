"""Instructions: what a function does, one after the other. Backends match over :data:`Instruction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from compiler.operands import Argument, CellVersion, FunctionRef, Operand, Scheduled, Setting, Shape
from compiler.penalty import Penalty
from compiler.projection import Projection
from graphspec.precision import Compute

Guard: TypeAlias = Literal["none", "drop", "window"]
"""What a gradient set that is not committed costs a window: nothing, itself, or all of it."""
Commit: TypeAlias = tuple[tuple[str, ...], ...]
"""Under which verdicts a write takes place: all of one of these; none at all: always."""

Counted: TypeAlias = Literal["", "kept", "elements", "returned", "assumed", "asked"]
"""How a loss brings a count of its own: not at all, the elements that it does not leave out, as it returns
(sum, count), perhaps so (else its rows count), or that is what is to be found out."""

Resting: TypeAlias = tuple[tuple[str, str], ...]
"""Parameters that are frozen for now: models, each with a pattern of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionBase:
    """What every instruction carries: its op, its place in the spec, the cells it touches, and notes for the reader."""

    op: str
    place: str = ""
    reads: tuple[CellVersion, ...] = ()
    writes: tuple[CellVersion, ...] = ()
    notes: tuple[str, ...] = ()
    """Short sentences a backend prints as comments, e.g. why an update stands where it stands."""
    commits: Commit = ()
    """The verdicts under which a write takes place; where they are not given it leaves everything as it is."""
    part: int = 0
    """The micro-batch that it is about, from 1; 0 for all of them, or none."""

    @property
    def key(self) -> str:
        """Return what tells it from the same op's of other micro-batches, by which draws are keyed, too: ``fake#2``."""
        return f"{self.op}#{self.part}" if self.part else self.op


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
    compute: Compute = "float32"
    """The type of the operands of what multiplies matrices and convolves in it; the results are float32 again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(InstructionBase):
    """Evaluate a pure function: a call, a loss, a metric."""

    family: Literal["call", "loss", "metric", "part"]
    """``part``: what micro-batches and counts need beside the language's: parts, shares, weigh, quotient, inverse."""
    function: FunctionRef
    arguments: tuple[Argument, ...]
    options: Mapping[str, Setting] = field(default_factory=dict[str, "Setting"])
    outputs: tuple[str, ...] = ()
    weight: float | Scheduled | None = None
    reduction: str | None = None
    times: int = 1
    """How often a loss counts: one that runs at every n-th step only, n times."""
    gathered: bool = False
    """Its batches are combined over several steps by their rows: a loss with a count of its own does not fit."""
    counted: Counted = ""
    """``outputs`` are its sum and its count; of ``asked`` a tensor with as many elements as it returns pieces."""
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
    options: Mapping[str, Setting] = field(default_factory=dict[str, "Setting"])
    gathered: bool = False
    """``like`` is one micro-batch of what is meant: it has another number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(InstructionBase):
    """Give the number of a schedule as a value without axes, of the type of the step."""

    output: str
    number: Scheduled


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
    term: str = ""
    """Of a loss whose terms count differently: the one that it is about."""

    @property
    def key(self) -> str:
        """Return what tells it from those of other terms, and of other micro-batches."""
        key = f"{self.op}.{self.term}" if self.term else self.op
        return f"{key}#{self.part}" if self.part else key


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
    resting: Resting = ()
    """``require``, ``fill`` and ``regularize`` leave alone that these parameters, frozen for now, have no gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(InstructionBase):
    """Look whether the gradient sets of an update are finite: ``output`` is true where all their elements are.

    ``spans``: the models of each of the sets.
    """

    gradients: tuple[str, ...]
    spans: tuple[tuple[str, ...], ...]
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(InstructionBase):
    """Add a gradient set to the window of an update, as often as ``reduce`` counts it.

    ``mean``: as many times as the batch has rows; else once. ``count``: it is that of a sum over the elements that the
    value ``count`` counts, which are added up beside it. Without ``gradients`` the step counts all the same: the terms
    that they are of are absent from it.
    """

    window: str
    models: tuple[str, ...]
    gradients: str | None
    reduce: Literal["mean", "sum", "steps"]
    count: str = ""
    guard: Guard = "none"
    gaps: bool = False
    """Some gradients may be absent: they add nothing."""
    strict: bool = False
    """None may be absent but those of ``resting``, which are frozen for now."""
    resting: Resting = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect(InstructionBase):
    """Take the gradient set of a whole window: the sum, or divided by how often its gradients count; it begins anew."""

    window: str
    models: tuple[str, ...]
    output: str
    filled: str = ""
    """The verdict whether the window has something to give, where its sets are judged."""
    gaps: bool = False
    """What was absent in every step is absent."""
    alone: bool = False
    """Nothing is gathered in this step: the window has what earlier ones gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(InstructionBase):
    """Forget what a window has gathered: it begins anew."""

    window: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPart:
    """One optimizer's share of an update: ``optimizer`` steps ``models`` on their part of the set ``gradients``.

    ``covers`` are the models the set spans, in order; the part is the whole set where ``covers == models``.
    """

    optimizer: str
    models: tuple[str, ...]
    gradients: str
    covers: tuple[str, ...]
    gaps: bool = False
    """Some gradients may be absent: nothing changes of those parameters, their slots included."""
    beside: tuple[str, ...] = ()
    """Models whose parameters another update steps: what they share with these is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply(InstructionBase):
    """Write the next version of the models' parameters: one optimizer step per part."""

    parts: tuple[ApplyPart, ...]
    projections: tuple[Projection, ...] = ()
    """What the parameters are made to satisfy then, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blend(InstructionBase):
    """``target = decay * target + (1 - decay) * source`` over the parameters, buffers as their policy says."""

    source: str
    target: str
    decay: float | Scheduled
    buffers: Literal["copy", "average", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(InstructionBase):
    """Copy parameters and buffers of ``source`` into ``target``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(InstructionBase):
    """Write a state: it becomes the operand, apart from every graph; whoever read it before keeps what it was."""

    state: str
    value: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(InstructionBase):
    """Find out what was not committed, so that nothing counts it, and let the loss scale follow: the end of a step."""

    verdicts: tuple[str, ...]
    """The verdicts over the gradients of the step: the scale shrinks where one is not given."""
    held: tuple[tuple[str, Commit], ...]
    """Every op that writes only under some verdicts, and which."""
    scaled: bool = False
    """There is a loss scale."""
    fatal: tuple[tuple[str, str], ...] = ()
    """(op, verdict): the step fails where the verdict is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(InstructionBase):
    """Forget values after their last use (``op`` is the op of that last use)."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit(InstructionBase):
    """Return the named values, detached, as the step's outputs."""

    values: tuple[str, ...]


Instruction: TypeAlias = (
    Forward
    | Evaluate
    | Random
    | Schedule
    | Gradient
    | Transform
    | Judge
    | Gather
    | Collect
    | Drop
    | Apply
    | Blend
    | Assign
    | Store
    | Settle
    | Release
    | Emit
)

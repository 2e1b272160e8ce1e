"""The trace of a training loop that somebody wrote by hand: what it did, in order, with the lines that did it.

A trace is frozen and knows no framework. A recorder (`runtime/backends/torch/audit`) fills it in and judges nothing;
:mod:`runtime.audit.findings` reads it. Tensors that outlive an op (parameters, buffers, what an optimizer steps) are
numbers into :attr:`Trace.tensors`, and every write of one makes its next version, counted from the start of the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NamedTuple, TypeAlias, TypeVar


class Place(NamedTuple):
    """A line of the user's: not of the framework, and not of this project."""

    file: str
    line: int

    def __str__(self) -> str:
        """Return ``train.py:31``."""
        return f"{PurePath(self.file).name}:{self.line}"


NOWHERE = Place("?", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor that outlives the ops: a parameter, a buffer, or another leaf that is stepped."""

    number: int
    model: str
    """The variable that holds its model, or the tensor itself where it belongs to none."""
    name: str
    """Its name in the model (``0.weight``), empty outside one."""
    kind: Literal["params", "buffers"]
    floating: bool = True

    @property
    def label(self) -> str:
        """Return ``net.0.weight``."""
        return f"{self.model}.{self.name}" if self.name else self.model


class Source(NamedTuple):
    """Something that a written value was made of: a tensor, or its gradient."""

    tensor: int
    is_gradient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """A call of a model from outside any other, or its repetition inside a backward that recomputes it."""

    place: Place
    model: str
    versions: tuple[tuple[int, int], ...]
    """The parameters and buffers that it read: (tensor, version)."""
    inputs: frozenset[int] = frozenset()
    """Numbers of the values that it is called with; a value and its views have one."""
    outputs: frozenset[int] = frozenset()
    """Numbers of the values that it returns."""
    training: bool
    recorded: bool
    """A graph was recorded: gradients were enabled."""
    trainable: bool
    """Some parameter of the model required a gradient."""
    idle: str = ""
    """In eval mode, a layer of it that would do something else in training."""
    moves: str = ""
    """Without a graph in training mode, statistics of a norm that it moves; empty if a loss is made of its result."""
    backward: int = 0
    """The backward that recomputes it."""
    compiled: bool = False
    """The model is compiled: what it writes and reads inside cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A tensor is written: its next version."""

    place: Place
    tensor: int
    version: int
    by: Literal["update", "forward", "recompute", "code", "backward"]
    writer: str
    """The optimizer or model that writes, or the operation."""
    sources: frozenset[Source] = frozenset()
    """What the value was made of, as far as it is known; nothing of what ran inside a model."""
    operation: str = ""
    """The kernel that writes."""
    frozen: Literal["", "no_grad", "parameters"] = ""
    """By a forward in training mode: it records no graph, or the layer has no parameter that requires a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A tensor is mixed into a copy of it that is no cell, as an average in a dictionary takes it in."""

    place: Place
    tensor: int
    number: int
    before: int = 0
    """The mixture that the copy was, 0 where it was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A backward reads a tensor that a forward saved."""

    tensor: int
    version: int
    """The one that the forward saw."""
    now: int
    """The one that is there."""
    place: Place
    """Where the forward ran."""
    raised: bool
    """Autograd noticed, and raised an error."""
    needed: bool = True
    """The gradient needs the value; a convolution of data keeps its weight for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overwritten:
    """A backward reads a value that is no longer what the forward saved."""

    place: Place
    """Where the forward saved it."""
    written: Place
    operation: str
    raised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a backward adds to the gradient of a tensor."""

    tensor: int
    onto: bool
    """There was a gradient already, to which it was added."""
    product: float = 0.0
    """The inner product of the two, and their squared lengths, where both were measured."""
    old: float = 0.0
    new: float = 0.0


class Spent(NamedTuple):
    """The time of the kernels in a backward that serve the gradients of some tensors, and of no others."""

    tensors: frozenset[int]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """The part of a graph that an earlier backward freed."""

    backward: int
    computed: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A place where a value that the loss is made of lost its graph."""

    kind: Literal["no_grad", "no_create_graph", "first_order", "detached", "dead_term"]
    """``first_order``: a gradient that became a step of weights; ``dead_term``: a term of a loss that was detached."""
    place: Place
    what: str
    """The model that ran without a graph."""
    elsewhere: bool = False
    """The same input reaches the loss on another path."""


class Regression(NamedTuple):
    """A distance of two values, both with a gradient: the one that is the target is moved, too."""

    place: Place
    tensors: frozenset[int]
    """What both of them are made of."""


Site: TypeAlias = tuple[tuple[str, int, int], ...]
"""The calls that lead to something, the innermost first: file, first line of the function, and instruction in it.

A function that is called twice has two sites, even on one line.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """One run of autograd: ``loss.backward()`` or ``autograd.grad``."""

    place: Place
    site: Site = ()
    number: int
    start: int
    """The events before it, those that it caused left out."""
    accumulates: bool
    """Into ``.grad``; `autograd.grad` returns its gradients instead."""
    retain: bool
    create: bool
    scale: float | None = None
    """The loss was multiplied by this factor of a loss scaler."""
    gains: tuple[Gain, ...] = ()
    spent: tuple[Spent, ...] = ()
    """Its time on the CPU."""
    reads: tuple[Read, ...] = ()
    overwritten: tuple[Overwritten, ...] = ()
    through: frozenset[int] = frozenset()
    """Earlier backwards that ran through a part of the same graph."""
    freed: Freed | None = None
    """A part of its graph that is gone."""
    cuts: tuple[Cut, ...] = ()
    regressions: tuple[Regression, ...] = ()
    """Those that it runs through."""
    error: str = ""
    """The first line of the error that it raised."""
    inside: int = 0
    """The backward that was running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientChange:
    """A gradient is removed, zeroed, replaced or changed, by another than a backward."""

    place: Place
    tensor: int
    change: Literal["none", "zero", "given", "changed"]
    function: str = ""
    """What changes it: ``clip_grad_norm_``."""
    sources: frozenset[Source] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRead:
    """The user's code takes ``.grad``."""

    place: Place
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientUse:
    """The user's code computes with a gradient that it took before another backward added to it."""

    place: Place
    tensor: int
    taken: Place
    listed: bool = False
    """It is in two lists, as what it was before and after: the program takes both for numbers of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One tensor of an update."""

    tensor: int
    has_gradient: bool
    zero: bool = False
    """Its gradient has only zeros, and no backward since the last zeroing has added to it."""
    moved: bool = False
    """It changed although its gradient is zero."""
    required: bool = True
    """It requires a gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """``optimizer.step()``."""

    place: Place
    optimizer: str
    parts: tuple[Part, ...]
    start: int
    repeated: bool = False
    """A tensor is in the optimizer twice."""
    overflow: bool = False
    """The kernel was given the verdict to skip the step, for gradients that are not finite."""
    state_written: bool = False
    """The state of the optimizer changed in a step that was skipped, or was made there and has no value yet."""
    closure: bool = False
    """It computes its gradients itself, by a closure."""
    unscales: bool = False
    """The kernel divides by the loss scale."""
    aliases: frozenset[int] = frozenset()
    """Tensors whose gradient the state of the optimizer holds without a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscale:
    """A loss scaler divides the gradients of an optimizer by its scale."""

    place: Place
    scaler: int
    optimizer: str
    scale: float
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerStep:
    """A loss scaler steps an optimizer, or skips it."""

    place: Place
    scaler: int
    optimizer: str
    tensors: tuple[int, ...]
    skipped: bool
    error: str = ""
    """The first line of the error that it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerUpdate:
    """A loss scaler moves its scale."""

    place: Place
    scaler: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTwice:
    """A loss is multiplied by a scale that a part of it carries already."""

    place: Place
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A schedule of a learning rate is advanced."""

    place: Place
    schedule: str
    optimizer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A layer draws random numbers."""

    place: Place
    layer: int
    state: int
    """The state of the generator before it, abbreviated."""
    model: str
    operation: str
    frozen: bool
    """The model is in training mode, and records no graph or has no parameter that requires a gradient."""
    awake: bool = False
    """A function drops units although its layer is in eval mode."""
    backward: int = 0
    """The backward that recomputes the layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleCast:
    """A forward reads a copy of a tensor in lower precision that autocast made before the tensor was written."""

    place: Place
    tensor: int
    cast: Place
    written: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A loss is still there, with its graph, when every optimizer has taken two steps since its backward."""

    place: Place
    """Where it was added to another value, or its backward."""
    backward: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """Something about a model of several processes that autograd's hooks do not see."""

    place: Place
    model: str
    event: Literal["bypassed", "two-forwards", "grad", "late-no-sync"]
    other: Place | None = None


Event: TypeAlias = (
    Forward
    | Write
    | Mixture
    | Backward
    | GradientChange
    | GradientRead
    | GradientUse
    | Update
    | Unscale
    | ScalerStep
    | ScalerUpdate
    | ScaledTwice
    | Tick
    | Draw
    | StaleCast
    | Kept
    | Replicated
)
Kind = TypeVar("Kind", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer that exists when the audit ends, or that had taken no step when the last recorded one began."""

    name: str
    tensors: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything that was recorded."""

    tensors: tuple[Stored, ...] = ()
    events: tuple[Event, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    unseen: tuple[str, ...] = ()
    """What could not be looked into, in sentences."""
    error: str = ""
    """The error that ended it."""
    seconds: float = 0.0
    """The time of all kernels on the CPU, from the first call of a model."""

    def of(self, kind: type[Kind]) -> Iterator[Kind]:
        """Yield the events of a kind, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def model(self, tensor: int) -> str:
        """Return the model of a tensor."""
        return self.tensors[tensor].model

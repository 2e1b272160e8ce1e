"""The tape of a training loop: which values its lines made of which, next to the trace of what they wrote.

A tape is frozen and knows no framework; a recorder fills it in. Its values are numbers into :attr:`Tape.values`, its
positions are those of the trace's events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from compiler.ir.value import Json
from runtime.audit.trace import Place, Site, Trace

Array: TypeAlias = npt.NDArray[np.generic]


class Ref(NamedTuple):
    """A value among the arguments of a function."""

    number: int


def as_list(given: object) -> list[object]:
    """Return a list among the arguments of a function; what is no list is empty."""
    is_list = isinstance(given, (list, tuple)) and not isinstance(given, Ref)
    return list(cast("tuple[object, ...]", given)) if is_list else []


def find_refs(given: object) -> Iterator[int]:
    """Yield the values among arguments."""
    match given:
        case Ref(number):
            yield number
        case list() | tuple():
            for each in as_list(cast("object", given)):
                yield from find_refs(each)
        case _:
            pass


def walk_back(values: Iterable[int], given: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Yield values, those that they are made of, and so on, each once; `given` returns what a value is made of."""
    pending, seen = list(values), set[int]()
    while pending:
        number = pending.pop()
        if number not in seen:
            seen.add(number)
            yield number
            pending.extend(given(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor as it was when the tape first saw it."""

    shape: tuple[int, ...]
    dtype: str
    data: Array | None = None
    """Its numbers, where no model has made it and no gradient flows into it."""
    constant: float | None = None
    """The number that it is filled with, where a function has filled it."""
    has_graph: bool = False
    """It has a graph."""
    tensor: int | None = None
    """A leaf that requires a gradient: its number in the trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of a function of tensors, outside of any model."""

    position: int
    place: Place
    function: str
    args: tuple[object, ...]
    options: Mapping[str, object]
    outputs: tuple[int, ...]

    @property
    def given(self) -> tuple[int, ...]:
        """Return the values among its arguments."""
        return tuple(find_refs((*self.args, *self.options.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A call of a model."""

    position: int
    place: Place
    model: str
    inputs: tuple[object, ...]
    outputs: tuple[int, ...]
    keys: tuple[str, ...] = ()
    """The names of its results, where it returns a dictionary."""
    has_others: bool = False
    """It returns a tuple with more than tensors."""
    recorded: bool = True
    """A graph was recorded: gradients were enabled."""
    training: bool = True
    autocast: str = ""
    """The type in which autocast lets it compute."""
    inside: str = ""
    """The model whose `forward` the program runs itself, past the hooks of modules: this one is a part of it."""

    @property
    def given(self) -> tuple[int, ...]:
        """Return the values among its inputs."""
        return tuple(find_refs(self.inputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """A backward, or a gradient that `autograd.grad` returns."""

    position: int
    place: Place
    site: Site
    backward: int
    roots: tuple[int, ...]
    losses: tuple[float, ...]
    """The numbers of its roots; NaN for one that is no scalar."""
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def given(self) -> tuple[int, ...]:
        """Return its roots, and what it differentiates them by."""
        return (*self.roots, *self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What advances the learning rate of an optimizer."""

    kind: str
    """Its class."""
    curve: Mapping[str, Json] | None
    """What it is in the language, counted in calls of its ``step``; None where it is none of its curves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """A step of an optimizer, with the options of its groups."""

    position: int
    place: Place
    optimizer: str
    rule: str
    groups: tuple[Mapping[str, object], ...]
    tensors: tuple[int, ...]
    members: tuple[frozenset[int], ...]
    """Those of each group."""
    schedule: Schedule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped:
    """A call of a function that clips gradients."""

    position: int
    place: Place
    function: str
    limit: float


Entry: TypeAlias = Called | Ran | Derived | Stepped | Clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that was called, or that an optimizer steps."""

    name: str
    kind: str
    """The class, as ``train:Net``."""
    tensors: Mapping[int, str]
    """Its parameters and buffers: their numbers in the trace, and their names in the model."""
    module: object
    layers: list[Json] | None = None
    """What it is in the language, where it is a list of built-in layers."""
    prefix: str = ""
    """What the names of its tensors begin with in the language: a single layer is the first of a list."""
    unknown: str = ""
    """The first of its layers that the language does not have, where it is a list of layers."""
    arguments: Mapping[str, Json] | None = None
    """With which its class makes it, where they could be found."""
    shape: tuple[int, ...] | None = None
    """Of a single tensor that is no part of a module."""
    replicated: bool = False
    """It is inside DistributedDataParallel."""
    by_mode: bool = False
    """It has layers that do something else in training mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """Everything that was recorded of a loop."""

    trace: Trace
    entries: tuple[Entry, ...]
    values: tuple[Value, ...]
    names: Mapping[int, str]
    """Value -> the variable that the program has for it."""
    models: Mapping[str, Model]
    snapshots: tuple[tuple[int, Mapping[int, Array]], ...]
    """Position -> the numbers of all parameters and buffers before it; the first is before the first forward."""

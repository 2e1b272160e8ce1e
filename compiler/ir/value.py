"""Operands: what instructions are made of, values, literals, numbers that follow a schedule, and cells at versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Struct
from pydantic import Field

from compiler.ir.cell import Cell, CellVersion
from graphspec.declare.schedules import ScheduleSpec
from graphspec.declare.subscripts import Subscript

Plain: TypeAlias = None | bool | int | float | str | tuple["Plain", ...] | Mapping[str, "Plain"]
Dimension: TypeAlias = int | str
"""A size, or the name of a free dimension such as ``batch``."""
Shape: TypeAlias = tuple[Dimension, ...]


class Ref(Struct, frozen=True, kw_only=True):
    """A value read by name; ``detach`` when no gradient may flow back through this use."""

    name: str
    detach: bool = False


class Constant(Struct, frozen=True, kw_only=True):
    """A literal number or boolean written in the spec."""

    value: bool | int | float


class Scheduled(Struct, frozen=True, kw_only=True):
    """A number that changes while training, where a literal could stand; it is no value, and nothing depends on it.

    On the clock ``updates`` of its schedule n counts those that ``optimizer`` has applied when the number is read.
    """

    op: str
    option: str
    """The field of the op that it is in: ``weight``; empty where the op is the schedule."""
    schedule: ScheduleDecl
    optimizer: str | None = None
    complement: bool = False
    """One minus the schedule is meant."""

    @property
    def name(self) -> str:
        """Return where it stands in the spec, by which the plan lists the schedule: ``penalty.weight``."""
        return f"{self.op}.{self.option}" if self.option else self.op

    def __str__(self) -> str:
        """Return its name."""
        return self.name


Operand: TypeAlias = Ref | Constant | Scheduled
Setting: TypeAlias = (
    None | bool | int | float | str | Scheduled | Subscript | tuple["Setting", ...] | Mapping[str, "Setting"]
)
"""An option of a function: plain, with numbers that change, or a subscript."""


class Argument(Struct, frozen=True, kw_only=True):
    """One argument of a call: positional if ``name`` is None, else by keyword."""

    operand: Operand
    name: str | None = None


class FunctionRef(Struct, frozen=True, kw_only=True):
    """A function: one of the library by its name, or a user's ``pkg.mod:fn``."""

    name: str
    builtin: bool


class Use(Struct, frozen=True, kw_only=True):
    """A value read by an instruction; ``differentiable`` where a gradient may flow back through it.

    ``optional``: the instruction does without it in steps in which nothing defines it; one that is no write is not
    there where all that it is made of is of that kind and absent. A gradient is made of its loss.
    """

    value: str
    differentiable: bool = True
    optional: bool = False


class Read(Struct, frozen=True, kw_only=True):
    """A cell read by an instruction, and at which version.

    ``saved``: where the instruction is differentiated, autograd keeps the cell itself (not a copy) until the gradient
    ran. ``streaming``: it reads the newest version when it runs, regardless of its causal past (train-mode statistics,
    an optimizer stepping its own parameters); otherwise it reads the version of its causal past. ``again``: the cell is
    read a second time, on every backend, when the gradient recomputes the instruction. ``constant``: for every gradient
    what is read is a constant.
    """

    cell: Cell
    version: int = 0
    saved: bool = False
    again: bool = False
    streaming: bool = False
    constant: bool = False

    @property
    def at(self) -> CellVersion:
        """Return the cell at its version."""
        return CellVersion(self.cell, self.version)

    def __str__(self) -> str:
        """Return ``cell@version``."""
        return f"{self.cell}@{self.version}"


class Write(Struct, frozen=True, kw_only=True):
    """A cell written, and the version made; ``statistics``: the running statistics of a train-mode forward."""

    cell: Cell
    version: int = 0
    statistics: bool = False

    @property
    def at(self) -> CellVersion:
        """Return the cell at the version that is made."""
        return CellVersion(self.cell, self.version)

    def __str__(self) -> str:
        """Return ``cell@version``."""
        return f"{self.cell}@{self.version}"


class Derivative(Struct, frozen=True, kw_only=True):
    """What is differentiated: a loss value, for models (whose parameters live in ``cells``) and values."""

    loss: str
    models: tuple[str, ...] = ()
    cells: frozenset[Cell] = frozenset()
    values: tuple[str, ...] = ()


class ScheduleDecl(Struct, frozen=True, kw_only=True):
    """A number that changes while training: a curve of n, its lengths in ticks of the clock that counts n.

    ``updates``: the updates that its optimizer has applied; ``steps``: the train steps before this one; ``samples``:
    those steps times ``pace`` (the samples of one); ``epochs``: those steps divided by ``pace`` (the steps of one) and
    rounded down. At the first use n is 0. ``writes``: those of the source of an average, this one included.
    """

    kind: str
    fields: Mapping[str, float] = {}
    clock: Literal["updates", "steps", "samples", "epochs", "writes"] = "updates"
    pace: int = 1
    values: tuple[float, ...] = ()
    """piecewise: the first value, then one from each of ``moments`` on."""
    parts: tuple[ScheduleDecl, ...] = ()
    """join: the first part, then one from each of ``moments`` on, where its own n is 0."""
    moments: tuple[int, ...] = ()
    """Rising, all greater than 0."""
    uncounted: ScheduleSpec | None = None
    """What is written, where a length of it cannot be counted yet; the number itself then says nothing."""


HyperParameter: TypeAlias = Plain | ScheduleDecl | tuple["HyperParameter", ...]
"""An option of an optimizer: plain, a schedule, or several numbers of which some follow one."""


def find_decls(option: HyperParameter) -> Mapping[str, ScheduleDecl]:
    """Return the schedules of an option by their places below it: ``""`` for itself, ``.0`` for its first number."""
    if isinstance(option, ScheduleDecl):
        return {"": option}
    items = enumerate(option) if isinstance(option, tuple) else ()
    return {f".{index}": each for index, each in items if isinstance(each, ScheduleDecl)}


Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Object: TypeAlias = dict[str, Json]

Fields: TypeAlias = Mapping[str, object]
"""What a kind of instruction adds to the published plan: the types of its fields."""
Names: TypeAlias = list[str]
Options: TypeAlias = dict[str, object]
"""Options as JSON: numbers, text, lists and mappings."""
Inputs: TypeAlias = list[str | float | bool]
Commits: TypeAlias = Annotated[
    list[Names], Field(description="The write takes place where all verdicts of one of these lists are given.")
]

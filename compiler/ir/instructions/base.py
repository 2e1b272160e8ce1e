"""What every instruction carries, and what passes, printers and backends may ask of every kind.

Passes that assign versions, find paths and hazards, or order a step ask its effects, not its kind: which values it uses
and defines, which cells it reads and writes, whether a gradient may flow through it, what it differentiates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from compiler.ir.cell import Cell
from compiler.ir.value import (
    Argument,
    Constant,
    Derivative,
    Fields,
    Json,
    Names,
    Object,
    Operand,
    Read,
    Ref,
    Scheduled,
    Setting,
    Use,
    Write,
)
from graphspec.declare.parts import Part

Commit: TypeAlias = tuple[tuple[str, ...], ...]
"""Under which verdicts a write takes place: all of one of these; none at all: always."""
Frozen: TypeAlias = tuple[tuple[str, str], ...]
"""Parameters that are currently frozen: models, each with a pattern of names."""
Overflow: TypeAlias = Literal["", "group", "all", "own", "apply", "error"]
TOGETHER: tuple[Overflow, ...] = ("group", "all")
"""Policies under which a write depends on the verdicts of other updates, regardless of their policies."""

UNSAID = "every kind of instruction answers this for itself"


class InstructionBase(Struct, frozen=True, kw_only=True):
    """One node of a step's graph: the op it belongs to, its effects, and when it runs.

    Passes fill in versions, commits, flags and notes. What has no answer that is right for most kinds raises here, and
    no kind can be added without one. It is no ABC: `isinstance`, which asks for kinds a thousand times in a small spec,
    would take five times as long.
    """

    FIELDS: ClassVar[Fields]
    """The schemas of what its kind adds to the published plan."""

    def __init_subclass__(cls) -> None:
        """Refuse a kind that leaves a question open (TypeError)."""
        asked = ("defines", "operands", "recorded", "phrase", "export")
        # A class that only others are made from may leave some open: it says nothing in the published plan.
        open_ = [name for name in asked if getattr(cls, name) is getattr(InstructionBase, name)]
        if open_ and "FIELDS" in vars(cls):
            raise TypeError(f"{cls.__name__} does not answer {', '.join(open_)}")

    op: str
    id: str = ""
    """Its name in the graph, unique: that of its op for one instruction of each op."""
    label: str = ""
    """How messages call it: ``forward on_fake``, ``gradient step_g``, ``apply step_d``."""
    place: str = ""
    """Where its op is declared: ``file:line:column``."""
    micro_batch: int = 0
    """The micro-batch that it is about, from 1; 0 for all of them, or none."""

    is_replica: bool = False
    """It runs on the rows of one replica: what it draws is keyed by the replica as well."""
    message: str = ""
    """The message that brings its result from all replicas: it waits for that, and runs as late as it may."""

    uses: tuple[Use, ...] = ()
    """The values that must exist before it: its operands, the verdicts it depends on, tokens."""
    token: str = ""
    """What it gives to those that must come after it and read nothing of it."""
    inner: tuple[str, ...] = ()
    """Those of its results from which the others may be made: a gradient by one of them runs back into it."""
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    follows: frozenset[Cell] = frozenset()
    """Cells after all of whose writers it comes, whether it reads them or not (an average and its source)."""
    differentiable: bool = True
    """False where the results are constants for every gradient (``stop``, argmax, a draw)."""

    gate: str = ""
    """The gate that admits it, where that is another than its op's."""
    within: tuple[Part, ...] = ()
    """The iterations and alternatives that its op belongs to, the outer ones first."""
    gated_by: str = ""
    """The update in whose steps it takes place: it is committed only where that is."""
    defer: Literal["auto", "end", "never"] = "auto"
    """The requested place of a write: as early as legal, at the end of the step, or right after its gradient."""
    free_early: bool = False
    """It runs as soon as its operands are defined, so that these can be freed."""
    return_if_available: bool = False
    """Where its value may be returned, it runs if all its operands are defined."""

    verdict: str = ""
    """A write of gradients: the value that says whether they are finite."""
    extra_checks: tuple[str, ...] = ()
    """Verdicts over gradients of other updates that it writes too, where these fire."""
    overflow: Overflow = ""
    """What non-finite gradients skip; empty: not specified."""
    commits: Commit = ()
    """The verdicts under which a write takes place; otherwise it changes nothing."""
    rows: bool = False
    """In its gradient sets the gradients of tables are rows: indices, each once, and their vectors."""

    notes: tuple[str, ...] = ()
    """Short sentences a backend prints as comments, e.g. why an update stands where it stands."""

    @classmethod
    def kind(cls) -> str:
        """Return the name of the kind in the published plan: ``take_accumulated``."""
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def key(self) -> str:
        """Return a key that is unique over an op's micro-batches, as in ``fake#2``; draws are keyed by it, too."""
        return f"{self.op}#{self.micro_batch}" if self.micro_batch else self.op

    # ------------------------------------------------------------ effects

    @property
    def admission(self) -> str:
        """Return the gate that admits it, if there is one of that name."""
        return self.gate or self.op

    @property
    def provides(self) -> tuple[str, ...]:
        """Return what others may use of it: its values and its token."""
        return (*self.defines, self.token) if self.token else self.defines

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the ops that it is of."""
        return (self.op,)

    @property
    def has_line(self) -> bool:
        """Return whether it has a line of its own in plans and emitted code."""
        return True

    @property
    def called(self) -> str | None:
        """Return the model that it calls, if it calls one."""
        return None

    @property
    def derivative(self) -> Derivative | None:
        """Return what it differentiates, if it is a gradient."""
        return None

    @property
    def penalizes(self) -> str | None:
        """Return the model whose penalties it adds to a gradient set, once per step, whichever of its updates fire."""
        return None

    @property
    def keeps_rest_of(self) -> str:
        """Return the message with a gradient set that it sends in part, while it keeps the rest of it."""
        return ""

    @property
    def combined(self) -> tuple[str, ...]:
        """Return the verdicts of which its own says that all are given, if it combines some."""
        return ()

    @property
    def is_verdict(self) -> bool:
        """Return whether what it defines is a verdict: whether gradients are finite, or some verdicts are given."""
        return False

    @property
    def is_of_verdicts(self) -> bool:
        """Return whether its verdict is made of others: it says whether all, or any, of these are given."""
        return False

    @property
    def skipped_by(self) -> tuple[str, ...]:
        """Return the verdicts that only say whether it does anything."""
        return ()

    @property
    def is_write(self) -> bool:
        """Return whether it is a write that stands at its earliest legal place, rather than on demand."""
        return False

    def comes_back_from(self, other: InstructionBase) -> bool:
        """Return whether it follows what the main one of its op writes: it gives a model the weights of its average."""
        is_second = self.op == other.id != self.id
        return is_second and not self.follows.isdisjoint(write.cell for write in other.writes)

    # ------------------------------------------------------------ values

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the names of the values that it defines."""
        raise TypeError(UNSAID)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the names of the values that it reads, in order; the verdicts under which it writes are none."""
        raise TypeError(UNSAID)

    @property
    def recorded(self) -> bool:
        """Return whether it runs with a graph that its results carry on."""
        raise TypeError(UNSAID)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """Return the values through which a graph may enter, with whether it is cut off there."""
        return ()

    @property
    def settings(self) -> tuple[object, ...]:
        """Return every field that may be, or contain, a scheduled number."""
        return ()

    @property
    def chosen(self) -> tuple[tuple[str, str], ...]:
        """Return what it treats apart: models, each with a pattern of parameters."""
        return ()

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the user's functions that it calls: ``pkg.mod:fn``."""
        return ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """Return the free sizes that it needs to know of the inputs."""
        return ()

    @property
    def drawing(self) -> bool:
        """Return whether it draws random numbers: a draw, a model's layers, a transform."""
        return False

    # ------------------------------------------------------------ words

    @property
    def phrase(self) -> str:
        """Return what it does, in one line: ``fake = generator(z)``."""
        raise TypeError(UNSAID)

    @property
    def title(self) -> str:
        """Return what a report calls it: ``forward net``, ``loss mse``."""
        return self.kind()

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what is special about how it runs: ``no_grad``."""
        return ()

    @property
    def condition(self) -> str:
        """Return what the verdict that it gives says: a write may take place only if so."""
        return f"the gradients of {self.op} are finite"

    def export(self) -> Object:
        """Return the fields that its kind adds to the published plan."""
        raise TypeError(UNSAID)


class Effect(InstructionBase, frozen=True, kw_only=True):
    """An instruction that defines no value: it writes, returns or forgets."""

    @property
    def is_write(self) -> bool:
        """Return True: what only writes need not wait until its result is wanted."""
        return True

    @property
    def defines(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    @property
    def recorded(self) -> bool:
        """Return False: it defines nothing with a graph."""
        return False


def export_commit(commits: Commit) -> list[Json]:
    """Return the verdicts under which a write takes place: any of these lists, all of its names."""
    return [[*way] for way in commits]


def find_verdicts(commits: Commit) -> tuple[str, ...]:
    """Return the verdicts that a condition names, each once."""
    return tuple(dict.fromkeys(verdict for way in commits for verdict in way))


def list_unless(commits: Commit) -> tuple[str, ...]:
    """Return the flag of an instruction that acts only where a condition does not hold."""
    return (f"unless {format_commit(commits)}",) if commits else ()


def format_commit(commits: Commit) -> str:
    """Return a condition in words: ``step_d.finite and step_g.finite or step_e.finite``."""
    return " or ".join(" and ".join(way) for way in commits)


def format_arguments(arguments: Iterable[Argument]) -> str:
    """Return arguments as in a call."""
    shown = ((f"{each.name}=" if each.name else "") + str(export_operand(each.operand)) for each in arguments)
    return ", ".join(shown)


def format_options(options: Mapping[str, Setting]) -> str:
    """Return options as keyword arguments, with a leading comma; a scheduled number is shown by its name."""
    shown = ""
    for name, value in options.items():
        if isinstance(value, tuple) and any(isinstance(each, Scheduled) for each in value):
            shown += f", {name}=({', '.join(map(str, value))})"
        else:
            shown += f", {name}={value}"
    return shown


def export_options(options: Mapping[str, Setting]) -> Object:
    """Return options as JSON; a scheduled number and a subscript are text."""
    return {name: _export_setting(value) for name, value in options.items()}


def _export_setting(value: Setting) -> Json:
    match value:
        case tuple():
            return [_export_setting(each) for each in value]
        case Mapping():
            return export_options(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def format_frozen(frozen: tuple[str, str]) -> str:
    """Return parameters that are currently frozen: ``net '^0'``."""
    model, match = frozen
    return f"{model} '{match}'"


def list_set(flags: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the flags that are set."""
    return tuple(name for name, is_set in flags.items() if is_set)


def export_inputs(arguments: Iterable[Argument]) -> list[Json]:
    """Return the inputs of a call: value names, and literals as numbers."""
    return [export_operand(each.operand) for each in arguments]


def export_operand(operand: Operand) -> bool | int | float | str:
    """Return one input: a name or a number."""
    return operand.value if isinstance(operand, Constant) else operand.name


def export_detached(arguments: Iterable[Argument]) -> list[Json]:
    """Return the inputs through which no gradient flows back."""
    operands = (each.operand for each in arguments)
    return [each.name for each in operands if isinstance(each, Ref) and each.detach]


def find_refs(operands: Iterable[Operand | None]) -> tuple[Ref, ...]:
    """Return the values among operands."""
    return tuple(each for each in operands if isinstance(each, Ref))


def find_names(operands: Iterable[Operand]) -> tuple[str, ...]:
    """Return the names of the values among operands."""
    return tuple(each.name for each in find_refs(operands))


class Release(Effect, frozen=True, kw_only=True):
    """Forget values after their last use (``op`` is the op of that last use)."""

    values: tuple[str, ...]
    large: tuple[str, ...] = ()
    """Those that are known to have many numbers for each row."""

    FIELDS: ClassVar[Fields] = {"values": Names, "large": Names}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return no operands: a release reads nothing."""
        return ()

    @property
    def phrase(self) -> str:
        """Return the values."""
        return ", ".join(self.values)

    def export(self) -> Object:
        """Return the values, and those that are large."""
        return {"values": list(self.values), "large": list(self.large)}


class Emit(Effect, frozen=True, kw_only=True):
    """Return the named values, detached, as the step's outputs."""

    values: tuple[str, ...]

    FIELDS: ClassVar[Fields] = {"values": Names}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the values."""
        return self.values

    @property
    def phrase(self) -> str:
        """Return the values."""
        return ", ".join(self.values)

    def export(self) -> Object:
        """Return the values."""
        return {"values": list(self.values)}

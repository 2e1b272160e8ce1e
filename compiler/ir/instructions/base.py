"""What every instruction carries, and what passes and printers may ask of every kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from compiler.ir.value import NAMES, Argument, CellVersion, Constant, Json, Object, Operand, Ref, Scheduled, Setting

Commit: TypeAlias = tuple[tuple[str, ...], ...]
"""Under which verdicts a write takes place: all of one of these; none at all: always."""
Resting: TypeAlias = tuple[tuple[str, str], ...]
"""Parameters that are frozen for now: models, each with a pattern of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionBase(ABC):
    """What every instruction carries: its op, its place in the spec, the cells it touches, and notes for the reader.

    What has no answer that is right for most kinds is abstract, so that none can be added without one.
    """

    FIELDS: ClassVar[Object]
    """The schemas of what its kind adds to the published plan."""

    op: str
    place: str = ""
    reads: tuple[CellVersion, ...] = ()
    writes: tuple[CellVersion, ...] = ()
    notes: tuple[str, ...] = ()
    """Short sentences a backend prints as comments, e.g. why an update stands where it stands."""
    commits: Commit = ()
    """The verdicts under which a write takes place; otherwise it changes nothing."""
    part: int = 0
    """The micro-batch that it is about, from 1; 0 for all of them, or none."""

    @classmethod
    def kind(cls) -> str:
        """Return the name of the kind in the published plan."""
        return cls.__name__.lower()

    @property
    def key(self) -> str:
        """Return a key that is unique over an op's micro-batches, as in ``fake#2``; draws are keyed by it, too."""
        return f"{self.op}#{self.part}" if self.part else self.op

    # ------------------------------------------------------------ values

    @property
    @abstractmethod
    def defines(self) -> tuple[str, ...]:
        """Return the names of the values that it defines."""

    @property
    @abstractmethod
    def operands(self) -> tuple[str, ...]:
        """Return the names of the values that it reads, in order; the verdicts under which it writes are none."""

    @property
    @abstractmethod
    def recorded(self) -> bool:
        """Return whether it runs with a graph that its results carry on."""

    @property
    def passed(self) -> tuple[Argument, ...]:
        """Return the arguments of what it calls."""
        return ()

    @property
    def settings(self) -> tuple[object, ...]:
        """Return every field that may be, or contain, a scheduled number."""
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
    @abstractmethod
    def phrase(self) -> str:
        """Return what it does, in one line: ``fake = generator(z)``."""

    @property
    def title(self) -> str:
        """Return what a report calls it: ``forward net``, ``loss mse``."""
        return self.kind()

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what is special about how it runs: ``no_grad``."""
        return ()

    @abstractmethod
    def export(self) -> Object:
        """Return the fields that its kind adds to the published plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(InstructionBase):
    """An instruction that defines no value: it writes, returns or forgets."""

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
    return (f"unless {' or '.join(' and '.join(way) for way in commits)}",) if commits else ()


def format_arguments(arguments: Iterable[Argument]) -> str:
    """Return arguments as in a call."""
    shown = ((f"{each.name}=" if each.name else "") + str(export_operand(each.operand)) for each in arguments)
    return ", ".join(shown)


def format_options(options: Mapping[str, Setting]) -> str:
    """Return options as keyword arguments, with a leading comma."""
    return "".join(f", {name}={_format_setting(value)}" for name, value in options.items())


def _format_setting(value: Setting) -> str:
    """Return an option; a scheduled number is shown by its name."""
    if isinstance(value, tuple) and any(isinstance(each, Scheduled) for each in value):
        return f"({', '.join(map(str, value))})"
    return f"{value}"


def format_resting(resting: tuple[str, str]) -> str:
    """Return parameters that are frozen for now: ``net '^0'``."""
    model, match = resting
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


def find_names(operands: Iterable[Operand]) -> tuple[str, ...]:
    """Return the names of the values among operands."""
    return tuple(each.name for each in operands if isinstance(each, Ref))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Effect):
    """Forget values after their last use (``op`` is the op of that last use)."""

    values: tuple[str, ...]

    FIELDS: ClassVar[Object] = {"values": NAMES}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: what is forgotten is not read."""
        return ()

    @property
    def phrase(self) -> str:
        """Return the values."""
        return ", ".join(self.values)

    def export(self) -> Object:
        """Return the values."""
        return {"values": list(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit(Effect):
    """Return the named values, detached, as the step's outputs."""

    values: tuple[str, ...]

    FIELDS: ClassVar[Object] = {"values": NAMES}

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

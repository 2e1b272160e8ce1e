"""The parts of a difference between two plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")

Aspect: TypeAlias = Literal["reads", "call", "flags"]
"""What of an instruction is different: the versions it reads, what it does with what, how it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Both(Generic[T]):
    """What only the new plan has, and what only the old one had."""

    appeared: tuple[T, ...] = ()
    vanished: tuple[T, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.appeared or self.vanished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An instruction as a plan shows it."""

    kind: str
    op: str
    label: str
    text: str
    cells: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One aspect of an instruction that is different, and why."""

    label: str
    op: str
    aspect: Aspect
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An instruction that stands elsewhere among the others, and why."""

    label: str
    op: str
    before: tuple[str, ...]
    """Those it had to follow, or has to precede, and now comes before."""
    after: tuple[str, ...]
    """Those it had to precede, or has to follow, and now comes after."""
    reasons: tuple[str, ...] = ()
    """What asks for the order there is now."""
    former: tuple[str, ...] = ()
    """What asked for the order there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A decision as a plan tells it: its code, the op it is about, and its sentence."""

    code: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChange:
    """What is different in one function of a mode; ``name`` is that in the new plan, ``was`` that in the old one."""

    mode: str
    name: str
    was: str
    sizes: tuple[int, int]
    """How many instructions there were, and how many there are."""
    rows: Both[Row]
    altered: tuple[Alteration, ...]
    moved: tuple[Move, ...]
    decisions: Both[Reason]

    def __bool__(self) -> bool:
        """Return whether anything is different."""
        return bool(self.rows or self.altered or self.moved or self.decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFunction:
    """A function that only one of the plans has, with the ops that fire in it."""

    mode: str
    name: str
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Everything that is different between two plans."""

    functions: tuple[FunctionChange, ...]
    """The functions that both plans have; those without a change too."""
    whole: Both[WholeFunction]
    warnings: Both[Reason]
    notes: Both[str]

    def __bool__(self) -> bool:
        """Return whether anything is different."""
        return bool(any(self.functions) or self.whole or self.warnings or self.notes)

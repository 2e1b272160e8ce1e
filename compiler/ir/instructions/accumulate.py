"""What an update accumulates over several steps, its window, and the checks whether gradients are finite."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from pydantic import BaseModel

from compiler.ir.instructions.base import (
    Commit,
    Effect,
    Frozen,
    InstructionBase,
    export_commit,
    find_verdicts,
    format_commit,
    list_unless,
)
from compiler.ir.value import (
    Commits,
    Fields,
    Names,
    Object,
)

Guard: TypeAlias = Literal["none", "drop", "window"]
"""What a gradient set that is not committed costs a window: nothing, itself, or all of it."""
Divisor: TypeAlias = Literal["rows", "elements", "steps", ""]
"""What a mean divides by: how many of these the window has counted; a sum by nothing."""


class Accumulate(Effect, frozen=True, kw_only=True):
    """Add a gradient set to the window of an update, as often as ``reduce`` counts it.

    ``mean``: as many times as the batch has rows; else once. ``count``: it is that of a sum over the elements that the
    value ``count`` counts, and the counts are summed along with it. Without ``gradients`` the step still counts: their
    terms are absent from it.
    """

    window: str
    models: tuple[str, ...]
    gradients: str | None
    reduce: Literal["mean", "sum", "steps"]
    count: str = ""
    counted: str = ""
    """The loss whose elements ``count`` counts."""
    guard: Guard = "none"
    may_miss: bool = False
    """Some gradients may be missing; those add nothing."""
    strict: bool = False
    """Only gradients of ``frozen`` parameters may be absent."""
    frozen: Frozen = ()

    FIELDS: ClassVar[Fields] = {
        "window": str,
        "inputs": Names,
        "reduce": Literal["mean", "sum", "steps"],
        "count": str,
        "guard": Literal["none", "drop", "window"],
    }

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the set and what counts its elements; nothing for a step that only counts."""
        return () if self.gradients is None else tuple(filter(None, (self.gradients, self.count)))

    @property
    def sizes(self) -> tuple[str, ...]:
        """Return that of the batch where its rows are counted."""
        return ("batch",) if self.reduce == "mean" else ()

    @property
    def divisor(self) -> Divisor:
        """Return what the window counts, to divide by; nothing for a sum."""
        counted: dict[str, Divisor] = {"mean": "rows", "steps": "steps", "sum": ""}
        return "elements" if self.count else counted[self.reduce]

    @property
    def phrase(self) -> str:
        """Return what is added to the window."""
        if self.gradients is None:
            return f"{self.window} window += nothing, its rows counted"
        weight = f" of {self.count} elements" if self.count else " * rows" if self.reduce == "mean" else ""
        return f"{self.window} window += {self.gradients}{weight}"

    def export(self) -> Object:
        """Return what is added, and how it counts."""
        inputs: Object = {"window": self.window, "inputs": list(filter(None, [self.gradients]))}
        return {**inputs, "reduce": self.reduce, "count": self.count, "guard": self.guard}


class TakeAccumulated(InstructionBase, frozen=True, kw_only=True):
    """Take the gradient set of a whole window: the sum, or the sum over its total count; then reset the window."""

    window: str
    models: tuple[str, ...]
    output: str
    divisor: Divisor
    filled: str = ""
    """The verdict whether the window holds anything, where its sets have verdicts."""
    may_miss: bool = False
    """Gradients that were absent in every step stay absent."""
    alone: bool = False
    """This step adds nothing: the window holds the gradients of earlier steps."""

    FIELDS: ClassVar[Fields] = {"window": str, "outputs": Names}

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the set, and the verdict whether there is one."""
        return (self.output, self.filled) if self.filled else (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: a window is no value."""
        return ()

    @property
    def recorded(self) -> bool:
        """Return False: what was accumulated is detached."""
        return False

    @property
    def phrase(self) -> str:
        """Return what is taken out of the window."""
        filled = f", {self.filled} = is there any" if self.filled else ""
        return f"{self.output} = {self.window} window{self.divisor and ' / '}{self.divisor}{filled}"

    @property
    def title(self) -> str:
        """Return the option of the update that makes windows."""
        return "accumulate"

    @property
    def condition(self) -> str:
        """Return that the window is not empty."""
        return f"the window of {self.op} holds a step"

    def export(self) -> Object:
        """Return the window, and what is taken out of it."""
        return {"window": self.window, "outputs": [*self.defines]}


class ResetAccumulator(Effect, frozen=True, kw_only=True):
    """Discard what a window has accumulated."""

    window: str

    FIELDS: ClassVar[Fields] = {"window": str}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: a window is no value."""
        return ()

    @property
    def phrase(self) -> str:
        """Return that the window is reset."""
        return f"{self.window} window <- nothing"

    def export(self) -> Object:
        """Return the window."""
        return {"window": self.window}


class RestoreAccumulator(Effect, frozen=True, kw_only=True):
    """Restore a window to its state before the step, unless the update that paces its own is applied."""

    window: str
    unless: Commit = ()
    """The verdicts under which that update is applied."""

    FIELDS: ClassVar[Fields] = {"window": str}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the verdicts on which it depends."""
        return self.skipped_by

    @property
    def skipped_by(self) -> tuple[str, ...]:
        """Return the verdicts under which it does nothing."""
        return find_verdicts(self.unless)

    @property
    def phrase(self) -> str:
        """Return that the step leaves the window alone."""
        return f"{self.window} window <- as before the step"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return where it does nothing."""
        return list_unless(self.unless)

    def export(self) -> Object:
        """Return the window."""
        return {"window": self.window}


class Verdict(InstructionBase, frozen=True, kw_only=True):
    """An instruction that gives a verdict: whether gradients are finite."""

    @property
    def is_verdict(self) -> bool:
        """Return True."""
        return True

    @property
    def recorded(self) -> bool:
        """Return False: a verdict is a constant."""
        return False


class VerdictOfVerdicts(Verdict, frozen=True, kw_only=True):
    """An instruction whose verdict, ``output``, is made of others."""

    output: str

    @property
    def is_of_verdicts(self) -> bool:
        """Return True."""
        return True

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the verdict."""
        return (self.output,)


class CheckFinite(Verdict, frozen=True, kw_only=True):
    """Check whether the gradient sets of an update are finite: ``output`` is true where all their elements are.

    ``spans``: the models of each of the sets. An update may have several verdicts: over what its window takes in, over
    what comes out, over what it shares with others.
    """

    subject: str
    """What the verdict is about: the update, or ``step.window``."""
    gradients: tuple[str, ...]
    spans: tuple[tuple[str, ...], ...]
    filled: str = ""
    """The value that says whether the window holds anything: an empty window is no overflow."""
    scope: Literal["", "own", "all"] = ""
    """Of replicas that check sets of their own: whether the verdict is that of one, or of all of them."""

    FIELDS: ClassVar[Fields] = {"inputs": Names, "outputs": Names}

    @property
    def key(self) -> str:
        """Return what the verdict is about."""
        return self.subject

    @property
    def output(self) -> str:
        """Return the verdict."""
        return f"{self.subject}.finite#own" if self.scope == "own" else f"{self.subject}.finite"

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the verdict."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the sets that it checks, and whether the window holds anything."""
        return (*self.gradients, self.filled) if self.filled else self.gradients

    @property
    def phrase(self) -> str:
        """Return the gradients that it checks."""
        where = " on all replicas" if self.scope == "all" else ""
        return f"{self.output} = all of {', '.join(self.gradients)} finite{where}"

    @property
    def condition(self) -> str:
        """Return what is finite."""
        what = f"the gradients of {self.op} are" if self.subject == self.op else f"what {self.op} accumulated is"
        return f"{what} finite"

    def export(self) -> Object:
        """Return the gradients that it checks, and its output."""
        return {"inputs": list(self.gradients), "outputs": [self.output]}


MOST = 4
"""The most updates that the condition of a group names."""


class AllFinite(VerdictOfVerdicts, frozen=True, kw_only=True):
    """Combine the verdicts of a group of updates: ``output`` is true where all of them are."""

    verdicts: tuple[str, ...]
    updates: tuple[str, ...]

    FIELDS: ClassVar[Fields] = {"inputs": Names, "outputs": Names}

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the updates."""
        return self.updates

    @property
    def combined(self) -> tuple[str, ...]:
        """Return the verdicts."""
        return self.verdicts

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the verdicts."""
        return self.verdicts

    @property
    def phrase(self) -> str:
        """Return the verdicts, joined."""
        return f"{self.output} = {' and '.join(self.verdicts)}"

    @property
    def condition(self) -> str:
        """Return what is finite."""
        *others, last = self.updates
        of = " and ".join(filter(None, (", ".join(others), last)))
        if len(self.updates) > MOST:
            of = f"all {len(self.updates)} updates of the group of {self.updates[0]}"
        return f"the gradients of {of} are finite"

    def export(self) -> Object:
        """Return the verdicts, and its output."""
        return {"inputs": list(self.verdicts), "outputs": [self.output]}


class AnyFinite(VerdictOfVerdicts, frozen=True, kw_only=True):
    """Find whether some earlier update of a model is applied: ``output`` is true where all verdicts of a way are.

    There are many such updates, and every later one would list them all.
    """

    ways: Commit

    FIELDS: ClassVar[Fields] = {"ways": Commits, "outputs": Names}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the verdicts on which it depends."""
        return find_verdicts(self.ways)

    @property
    def phrase(self) -> str:
        """Return the ways, joined."""
        return f"{self.output} = {format_commit(self.ways)}"

    def export(self) -> Object:
        """Return the ways, and its output."""
        return {"ways": export_commit(self.ways), "outputs": [self.output]}


class Conditional(BaseModel, extra="forbid"):
    """An op that writes only under some verdicts, as the plan shows it."""

    op: str
    commits: Commits


class ResolveOverflow(Effect, frozen=True, kw_only=True):
    """End a step: find which writes were not committed, so that nothing counts them, and update the loss scale."""

    verdicts: tuple[str, ...]
    """The verdicts over the gradients of the step: the scale shrinks where one is not given."""
    conditional: tuple[tuple[str, Commit], ...]
    """Every op that writes only under some verdicts, and which."""
    scaled: bool = False
    """There is a loss scale."""
    fatal: tuple[tuple[str, str], ...] = ()
    """(op, what is checked): the step fails where that is not finite."""

    FIELDS: ClassVar[Fields] = {
        "inputs": Names,
        "conditional": list[Conditional],
        "scaled": bool,
        "fatal": Names,
    }

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the verdicts."""
        return self.verdicts

    @property
    def phrase(self) -> str:
        """Return what the loss scale follows."""
        if not self.verdicts:
            return "the loss scale stays as it is"
        scale = "loss scale <- by " if self.scaled else ""
        return f"{scale}{', '.join(self.verdicts)}"

    def export(self) -> Object:
        """Return the verdicts, and what depends on them."""
        return {
            "inputs": list(self.verdicts),
            "conditional": [{"op": op, "commits": export_commit(commit)} for op, commit in self.conditional],
            "scaled": self.scaled,
            "fatal": list(dict.fromkeys(op for op, _ in self.fatal)),
        }

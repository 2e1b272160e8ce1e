"""``judge`` and ``settle``: verdicts over gradients, and the end of a step that has some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.instructions.base import Commit, Effect, InstructionBase, export_commit
from compiler.published import COMMITS, FLAG, NAMES, TEXT, Object, listing, record


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge(InstructionBase):
    """Look whether the gradient sets of an update are finite: ``output`` is true where all their elements are.

    ``spans``: the models of each of the sets. An update may have several verdicts: over what its window takes in, over
    what comes out, over what it shares with others.
    """

    gradients: tuple[str, ...]
    spans: tuple[tuple[str, ...], ...]
    output: str
    filled: str = ""
    """The value that says whether the window holds something: one that is empty is no overflow."""

    FIELDS: ClassVar[Object] = {"inputs": NAMES, "outputs": NAMES}

    @property
    def key(self) -> str:
        """Return what tells it from other verdicts: the update, or ``step.window``."""
        return self.output.removesuffix(".finite")

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the verdict."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the sets that it checks, and whether there is something in them."""
        return (*self.gradients, self.filled) if self.filled else self.gradients

    @property
    def recorded(self) -> bool:
        """Return that a verdict is a constant."""
        return False

    @property
    def phrase(self) -> str:
        """Return what is looked at."""
        return f"{self.output} = all of {', '.join(self.gradients)} finite"

    def export(self) -> Object:
        """Return what is looked at."""
        return {"inputs": list(self.gradients), "outputs": [self.output]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle(Effect):
    """Find out what was not committed, so that nothing counts it, and let the loss scale follow: the end of a step."""

    verdicts: tuple[str, ...]
    """The verdicts over the gradients of the step: the scale shrinks where one is not given."""
    held: tuple[tuple[str, Commit], ...]
    """Every op that writes only under some verdicts, and which."""
    scaled: bool = False
    """There is a loss scale."""
    fatal: tuple[tuple[str, str], ...] = ()
    """(op, verdict): the step fails where the verdict is not given."""

    FIELDS: ClassVar[Object] = {
        "inputs": NAMES,
        "held": listing(record({"op": TEXT, "commits": COMMITS})),
        "scaled": FLAG,
        "fatal": NAMES,
    }

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the verdicts."""
        return self.verdicts

    @property
    def phrase(self) -> str:
        """Return what the loss scale follows."""
        scale = "loss scale <- by " if self.scaled else ""
        return f"{scale}{', '.join(self.verdicts)}"

    def export(self) -> Object:
        """Return the verdicts, and what hangs on them."""
        return {
            "inputs": list(self.verdicts),
            "held": [{"op": op, "commits": export_commit(commit)} for op, commit in self.held],
            "scaled": self.scaled,
            "fatal": list(dict.fromkeys(op for op, _ in self.fatal)),
        }

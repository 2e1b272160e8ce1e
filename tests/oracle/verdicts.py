"""Verdicts: whether the gradients of a step are finite, and which of its writes do not take place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphspec.ops import CopyOp, EmaOp, UpdateOp
from tests.oracle.groups import Groups
from tests.oracle.meaning import WRITERS

if TYPE_CHECKING:
    from tests.oracle.step import StepValues


class Verdicts:
    """The verdicts of one step, each found when it is asked for."""

    def __init__(self, step: StepValues, firing: Iterable[str], gathering: Iterable[str]) -> None:
        self.step, self.firing, self.gathering = step, list(firing), set(gathering)
        self.groups = Groups(step.meaning, self.firing, gathering)
        self.found: dict[str, bool] = {}
        self.held: dict[str, bool] = {}

    def is_finite(self, name: str) -> bool:
        """Return whether all gradients that an update is made from are finite, as they were taken."""
        if name not in self.found:
            op = self.step.meaning.ops[name]
            sets = self._taken(op)
            self.found[name] = all(np.isfinite(g).all() for one in sets for g in one.values())
        return self.found[name]

    def _taken(self, op: UpdateOp) -> list[Mapping]:
        """Return the gradients that an update is made from; in a window term by term, where they count differently."""
        windows = self.step.windows
        if op.window > 1:
            return [taken for leaf in windows.leaves(op) for taken in windows.taken(self.step, op, leaf)]
        leaves = [] if op.loss is not None else windows.leaves(op)
        return [self.step.gradients(leaf) for leaf in leaves] or [self.step.own_gradients(op)]

    def are_finite(self) -> bool:
        """Return whether all gradients that were taken for updates in this step are finite."""
        return all(self.is_finite(name) for name in self.groups.taking)

    def commits(self, name: str) -> bool:
        """Return whether the gradients that an update takes in this step are used: by its optimizer, or its window."""
        return all(self.is_finite(other) for other in self.groups.judges(name)) and not self._is_paced_by_held(name)

    def is_guarded(self, name: str) -> bool:
        """Return whether the window of an update does without what is not finite."""
        op = self.step.meaning.ops[name]
        return op.window > 1 and op.on_overflow != "apply" and self.groups.has_verdict(name)

    def is_held(self, name: str) -> bool:
        """Return whether an op that fires leaves everything as it is."""
        if name not in self.held:
            self.held[name] = self._is_paced_by_held(name) or self._holds(name)
        return self.held[name]

    def find_held(self) -> set[str]:
        """Return the writes of the step that do not take place."""
        return {name for name in self.firing if isinstance(self.step.meaning.ops[name], WRITERS) and self.is_held(name)}

    def _holds(self, name: str) -> bool:
        op = self.step.meaning.ops[name]
        match op:
            case UpdateOp() if op.window > 1:
                return self.is_guarded(name) and (not self._is_filled(name) or self._is_spoiled(name))
            case UpdateOp():
                return not self.commits(name) or (bool(self.groups.judges(name)) and self._is_spoiled(name))
            case EmaOp() | CopyOp():
                return self._follows_held(name, op.ema if isinstance(op, EmaOp) else op.copy_)
            case _:
                return False

    def _is_filled(self, name: str) -> bool:
        """Return whether the window of an update has something to give."""
        return self.step.windows.is_filled(self.step, name, self.step.meaning.ops[name])

    def _is_spoiled(self, name: str) -> bool:
        """Return whether others, whose gradients an update adds to its own, are left out, or not finite."""
        givers = [giver for giver in self.step.meaning.sharing[name] if giver in self.firing]
        return not all(self._is_filled(one) if self.is_guarded(one) else self._gives(one) for one in givers)

    def _gives(self, name: str) -> bool:
        """Return whether the gradients of an update are finite, and those of its group where it goes by that."""
        return self.is_finite(name) and all(self.is_finite(other) for other in self.groups.judges(name))

    def _follows_held(self, name: str, source: str) -> bool:
        """Return whether whatever writes a model in this step is held."""
        meaning = self.step.meaning
        cells = {*meaning.storages.cells(source), f"{source}.buffers"}
        writers = [other for other in self.firing if isinstance(meaning.ops[other], WRITERS) and other != name]
        writers = [other for other in writers if meaning.writes(other) & cells]
        return bool(writers) and all(self.is_held(other) for other in writers)

    def _is_paced_by_held(self, name: str) -> bool:
        """Return whether an op goes by the steps of an update that is held."""
        every = self.step.meaning.ops[name].every
        return isinstance(every, str) and every in self.firing and self.is_held(every)

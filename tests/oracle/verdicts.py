"""Verdicts: whether the gradients of a step are finite, and which of its writes do not take place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.ops import CopyOp, EmaOp, UpdateOp
from tests.oracle.backs import back_of
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
        self.assumed: set[str] = set()
        """Updates whose gradients are taken to be finite while something is found out that matters only then."""

    def is_finite(self, name: str) -> bool:
        """Return whether all gradients of an update are finite: as they were taken, and as its optimizer gets them.

        What comes out of a window is looked at when it is taken.
        """
        if name in self.assumed:
            return True
        if name not in self.found:
            op = self.step.meaning.ops[name]
            sets = self._taken(op)
            sets += [] if op.window > 1 else self._way(name)
            self.found[name] = are_all_finite(sets)
        return self.found[name]

    def is_sound(self, name: str) -> bool:
        """Return whether what is applied in the end is finite: what comes of a window, and what others add."""
        op, key = self.step.meaning.ops[name], f"{name} as applied"
        if key not in self.found:
            sets = [self.step.shared_gradients(name, op)] if self.step.meaning.sharing[name] else []
            is_taken = op.window > 1 and self._has_something(name)
            sets += self._way(name) if is_taken else []
            self.found[key] = are_all_finite(sets)
        return self.found[key]

    def _has_something(self, name: str) -> bool:
        """Return whether an update is applied on something; one that takes whatever comes always is."""
        return not self.is_guarded(name) or self._is_filled(name)

    def _taken(self, op: UpdateOp) -> list[Mapping]:
        """Return the gradients that an update is made from; in a window term by term, where they count differently."""
        windows = self.step.windows
        if op.window > 1:
            return [taken for leaf in windows.leaves(op) for taken in windows.taken(self.step, op, leaf)]
        leaves = [] if op.loss is not None else windows.leaves(op)
        return [self.step.gradients(leaf) for leaf in leaves] or [self.step.own_gradients(op)]

    def are_found(self) -> bool:
        """Return whether a step finds out about any gradients."""
        return bool(self.groups.taking or self._find_applied())

    def are_finite(self) -> bool:
        """Return whether all gradients that were taken for updates in this step are finite, or applied."""
        return all(map(self.is_finite, self.groups.taking)) and all(map(self.is_sound, self._find_applied()))

    def _find_applied(self) -> list[str]:
        """Return the updates whose last gradients are looked at."""
        return [name for name in self.groups.firing if self.groups.has_verdict(name)]

    def commits(self, name: str) -> bool:
        """Return whether the gradients that an update takes in this step are used: by its optimizer, or its window."""
        return all(self.is_finite(other) for other in self.groups.judges(name)) and not self.is_paced_by_held(name)

    def is_guarded(self, name: str) -> bool:
        """Return whether the window of an update does without what is not finite."""
        op = self.step.meaning.ops[name]
        return op.window > 1 and op.on_overflow != "apply" and self.groups.has_verdict(name)

    def is_held(self, name: str) -> bool:
        """Return whether an op that fires leaves everything as it is."""
        if name not in self.held:
            self.held[name] = self.is_paced_by_held(name) or self._holds(name)
        return self.held[name]

    def find_held_before(self, others: Iterable[str], name: str) -> list[str]:
        """Return which of some updates are held in a step in which another, behind them, is applied."""
        op = self.step.meaning.ops[name]
        before = self.assumed, self.found, self.held, self.step.finals, self.step.ways
        self.assumed = self.assumed | {*(self.groups.judges(name) if op.window == 1 else ())}
        self.found, self.held, self.step.finals = dict(self.found), dict(self.held), dict(self.step.finals)
        self.step.ways = dict(self.step.ways)
        try:
            return [other for other in others if self.is_held(other)]
        finally:
            self.assumed, self.found, self.held, self.step.finals, self.step.ways = before

    def find_held(self) -> set[str]:
        """Return the writes of the step that do not take place."""
        return {name for name in self.firing if isinstance(self.step.meaning.ops[name], WRITERS) and self.is_held(name)}

    def _holds(self, name: str) -> bool:
        op = self.step.meaning.ops[name]
        match op:
            case UpdateOp() if op.window > 1:
                is_judged = self.is_guarded(name)
                return is_judged and (not self._is_filled(name) or self._is_spoiled(name) or not self.is_sound(name))
            case UpdateOp():
                is_judged = bool(self.groups.judges(name))
                return not self.commits(name) or (is_judged and (self._is_spoiled(name) or not self.is_sound(name)))
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
        return not all(self._gives(one) for one in givers)

    def _gives(self, name: str) -> bool:
        """Return whether what an update gives is finite, and that of its group where it goes by that."""
        if self.step.meaning.ops[name].window > 1:
            return self._has_something(name) and are_all_finite(self._way(name))
        return self.is_finite(name) and all(self.is_finite(other) for other in self.groups.judges(name))

    def _way(self, name: str) -> list[Mapping]:
        """Return what an update is given in the end, and all that it is made of."""
        self.step.final_gradients(name, self.step.meaning.ops[name])
        return self.step.ways[name]

    def _follows_held(self, name: str, source: str) -> bool:
        """Return whether whatever writes a model in this step is held."""
        meaning = self.step.meaning
        cells = {*meaning.storages.cells(source), f"{source}.buffers"}
        writers = [other for other in self.firing if isinstance(meaning.ops[other], WRITERS)]
        writers = [other for other in writers if other not in (name, back_of(name)) and meaning.writes(other) & cells]
        return bool(writers) and all(self.is_held(other) for other in writers)

    def is_paced_by_held(self, name: str) -> bool:
        """Return whether an op goes by the steps of an update that is held."""
        every = self.step.meaning.ops[name].every
        return isinstance(every, str) and every in self.firing and self.is_held(every)


def are_all_finite(sets: Iterable[Mapping]) -> bool:
    """Return whether all gradients of some sets are finite."""
    return all(np.isfinite(g).all() for one in sets for g in one.values())

"""Commit groups: which updates are taken back together where a gradient is not finite, by the letter of the definition.

Two updates are in one group iff the same firing updates happen before their gradients.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphspec.declare.ops import UpdateOp
from tests.oracle.meaning import Meaning

ALONE = ("own", "error")
"""Policies under which an update depends on its own gradients."""
TOGETHER = ("group", "all")
"""Policies that ask for a group."""


class Groups:
    """The groups among the updates that take gradients in a step: to apply them, or to gather them."""

    def __init__(self, meaning: Meaning, firing: Iterable[str], gathering: Iterable[str]) -> None:
        self.meaning = meaning
        ops, gathering = meaning.ops, {*gathering}
        self.firing = frozenset(name for name in firing if isinstance(ops[name], UpdateOp))
        updates = [name for name in ops if isinstance(ops[name], UpdateOp)]
        self.taking = [name for name in updates if name in (gathering if ops[name].window > 1 else self.firing)]
        self.is_scaled = meaning.spec.loss_scale is not None
        self.words = {name: ops[name].on_overflow or "" for name in updates}
        """What each update says."""

    def judges(self, name: str) -> list[str]:
        """Return the updates of whose gradients all must be finite, lest those of an update be dropped."""
        word = self.words[name]
        if word in ALONE:
            return [name]
        members = self._find_members(name)
        asked = self.is_scaled or any(self.words[other] in TOGETHER for other in members)
        return members if asked and word != "apply" else []

    def has_verdict(self, name: str) -> bool:
        """Return whether it is found out at all if the gradients of an update are finite."""
        ops = self.meaning.spec.ops.values()
        asked = any(isinstance(op, UpdateOp) and op.on_overflow in TOGETHER for op in ops)
        return self.is_scaled or asked or self.words[name] in ALONE

    def _find_members(self, name: str) -> list[str]:
        """Return the updates of a group: all that do not stand alone where one of them says `all`."""
        sharing = [other for other in self.taking if self.words[other] not in (*ALONE, "apply")]
        if any(self.words[other] == "all" for other in sharing):
            return sharing
        return [other for other in sharing if self._before(other) == self._before(name)]

    def _before(self, name: str) -> frozenset[str]:
        """Return the updates that happen before the gradients of an update, of those that take part in the step."""
        owners = [self.meaning.owner[value] for value in self.meaning.gathered(name)]
        return (self.firing | {*self.taking}) & frozenset[str]().union(*(self.meaning.past[owner] for owner in owners))

"""A mutant: the compiler, or what it is built into, with one function or table that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from tests.properties.mutations import Change

ELSEWHERE = ("graphspec.", "runtime.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One wrong function or table."""

    name: str
    says: str
    place: str
    """``module:name`` in the compiler, ``graphspec.`` or ``runtime.``, where the name is looked up when it is used."""
    change: Change
    killer: str = ""
    """The property that fails; nothing for a mutant that changes no step."""
    case: str = ""
    """The special spec for which it fails; empty: the one that is kept under the name of the mutant."""

    @property
    def spec(self) -> str:
        """Return the name of the spec for which it fails."""
        return self.case or self.name

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Be wrong for a while."""
        module, _, path = self.place.partition(":")
        *owners, name = path.split(".")
        owner = import_module(module if module.startswith(ELSEWHERE) else f"compiler.{module}")
        for one in owners:
            owner = getattr(owner, one)
        original = getattr(owner, name)
        setattr(owner, name, self.change(original))
        try:
            yield
        finally:
            setattr(owner, name, original)

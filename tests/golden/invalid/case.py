"""One broken spec of the goldens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One broken spec: how the command is called on it, and what must be told.

    ``told`` has for every problem, by place, its code with line and column, and words that its remedy must have.
    """

    name: str
    told: Mapping[str, str]
    command: tuple[str, ...]

    @property
    def golden(self) -> Path:
        """Return the file with the whole text that the command prints."""
        return HERE / f"{self.name}.txt"


def check(file: str, told: Mapping[str, str], *more: str, name: str = "") -> Case:
    """Return a case of `stepgraph check`."""
    return Case(name or file.replace(".yaml", "").replace(".", "_"), told, ("check", file, *more))


def run(name: str, told: Mapping[str, str], *allow: str) -> Case:
    """Return a case of `stepgraph run`."""
    flags = tuple(part for package in allow for part in ("--allow", package))
    return Case(name, told, ("run", f"{name}.yaml", *flags))

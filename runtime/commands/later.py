"""The commands that the language has and this version does not: they say so."""

from __future__ import annotations

from collections.abc import Callable

from runtime.problems import problem

LATER = {
    "bench": "`stepgraph run` prints steps per second",
}
"""Name of the command -> what does part of its work now."""


def refuse(name: str) -> Callable[[], None]:
    """Return the command of that name: one that only says that it is not built yet."""

    def command() -> None:
        """Say that this is not built yet."""
        raise problem("GS235", f"`stepgraph {name}` is part of the design but not built yet", help=LATER[name])

    return command

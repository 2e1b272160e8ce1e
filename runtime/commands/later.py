"""The commands that the language has and this version does not: they say so."""

from __future__ import annotations

from collections.abc import Callable

from runtime.problems import problem

LATER = {
    "render": "`stepgraph check` and `stepgraph plan` read a spec with its overrides",
    "diff": "compare the output of `stepgraph plan --format json`",
    "doctor": "`stepgraph check` finds the problems of a spec",
    "eval": '`build(plan)` in Python gives a step that takes `mode="eval"`',
    "export": "the checkpoint of a run is a safetensors file that others read",
    "bench": "`stepgraph run` prints steps per second",
}
"""Name of the command -> what does part of its work now."""


def refuse(name: str) -> Callable[[], None]:
    """Return the command of that name: one that only says that it is not built yet."""

    def command() -> None:
        """Say that this is not built yet."""
        raise problem("GS235", f"`stepgraph {name}` is part of the design but not built yet", help=LATER[name])

    return command

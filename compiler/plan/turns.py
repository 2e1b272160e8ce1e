"""Which function a step takes: by the clocks that choose it in a run, from the first step on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from compiler.ir.program import ModeProgram, Program
from compiler.timing.gates import count_on, fire

SHOWN = 16
"""How many steps a plan lists."""
FARTHEST = 20_000
"""The last step up to which a function is looked for."""
TIMES = 3
"""How many steps of a function are named."""


def find_turns(mode: ModeProgram, program: Program) -> Iterator[str]:
    """Yield the function of every step, as long as no update is skipped.

    Yields nothing where the number of a step does not tell: where batches are of several data sets, averages take the
    place of models, or a start or an end counts updates.
    """
    if program.datasets or any(gate.clock == "averaged" or gate.is_counted for gate in mode.gates):
        return
    names = {frozenset(function.gated): function.name for function in mode.functions}
    gated = {gate.op for gate in mode.gates}
    always = frozenset(name for gate in mode.gates for group in gate.follows for name in group if name not in gated)
    counts: dict[str, int] = {}
    for step in range(1, FARTHEST + 1):
        fired = fire(mode.gates, step, counts, always)
        yield names[fired]
        for gate in (gate for gate in mode.gates if gate.clock == "writes"):
            counts[gate.op] = count_on(gate, counts.get(gate.op, 0), step, always | fired)


def find_first_turns(mode: ModeProgram, program: Program) -> tuple[str, ...]:
    """Return the functions of the first steps; none where the number of a step does not tell."""
    return tuple(islice(find_turns(mode, program), SHOWN))


def describe_turns(mode: ModeProgram, program: Program) -> dict[str, str]:
    """Return by function in which steps it runs: `steps 1, 9, 17, ...`; nothing for a mode with one function."""
    found: dict[str, list[int]] = {function.name: [] for function in mode.functions}
    if len(found) == 1:
        return {}
    missing = dict.fromkeys(found, TIMES + 1)
    for step, name in enumerate(find_turns(mode, program), start=1):
        found[name].append(step)
        missing[name] -= 1
        if max(missing.values()) <= 0:
            break
    is_known = any(found.values())
    return {name: _format_steps(steps) for name, steps in found.items()} if is_known else {}


def _format_steps(steps: Sequence[int]) -> str:
    """Return the steps of a function in words."""
    if not steps:
        return f"after step {FARTHEST:,}"
    shown = ", ".join(map(str, steps[:TIMES]))
    word = "step" if len(steps) == 1 else "steps"
    return f"{word} {shown}" + (", ..." if len(steps) > TIMES else f" of the first {FARTHEST:,}")

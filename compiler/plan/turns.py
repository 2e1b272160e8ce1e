"""Which function a step takes: by the clocks that choose it in a run, from the first step on."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import islice
from math import lcm, prod

from compiler.ir.program import ModeProgram, Program
from compiler.timing.gates import count_on, fire

SHOWN = 16
"""How many steps a plan lists."""
FARTHEST = 20_000
"""The last step up to which a function is looked for."""
TIMES = 3
"""How many runs of steps of a function are named."""


def find_turns(mode: ModeProgram, program: Program) -> Iterator[str]:
    """Yield the function of every step, as long as no update is skipped.

    Yields nothing where the number of a step does not tell: where batches are of several data sets, averages take the
    place of models, alternatives are drawn, or a start or an end counts updates.
    """
    if program.datasets or any(gate.clock == "averaged" or gate.is_counted or gate.draw for gate in mode.gates):
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


@dataclass(frozen=True, slots=True)
class Turns:
    """The functions of the first steps, so many that what follows repeats them."""

    names: tuple[str, ...]
    settled: int
    """The step from which on the functions take turns in a fixed pattern."""
    is_whole: bool
    """Whether there are enough steps to see the pattern."""

    def describe(self, chosen: Container[str]) -> str:
        """Return in words the steps that take one of some functions: `steps 1-3, 5-7, 9-11, ...`, `from step 51 on`."""
        steps = [step for step, name in enumerate(self.names, start=1) if name in chosen]
        if not steps:
            # Clocks that count the writes of different ops come apart only where one is skipped.
            return "only after a skipped update" if self.is_whole else f"after step {FARTHEST:,}"
        runs: list[tuple[int, int]] = []  # the first and the last of steps that follow one another
        for step in steps:
            if runs and step == runs[-1][1] + 1:
                runs[-1] = runs[-1][0], step
            else:
                runs.append((step, step))
        if len(runs) == 1 and steps[-1] == len(self.names) and self.is_whole:
            return "every step" if steps[0] == 1 else f"from step {steps[0]} on"
        ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
        shown = ", ".join(ranges[:TIMES])
        word = "step" if len(steps) == 1 else "steps"
        if self.is_whole and steps[-1] <= self.settled:
            return f"{word} {shown}" + (f", ..., {ranges[-1]}" if len(runs) > TIMES else "")
        return f"{word} {shown}" + (", ..." if len(runs) > TIMES else f" of the first {FARTHEST:,}")


def count_turns(mode: ModeProgram, program: Program) -> Turns | None:
    """Return the functions of the first steps; None where the number of a step does not tell."""
    moments = (each for gate in mode.gates for each in (gate.start, gate.until))
    settled = max((each for each in moments if each is not None), default=0)
    period = lcm(*(each for gate in mode.gates for each in (gate.every, gate.epoch or 1)))
    # A clock that counts writes is as slow as what it counts, times its own interval.
    period *= prod(gate.every for gate in mode.gates if gate.clock == "writes")
    end = settled + (TIMES + 1) * period
    names = tuple(islice(find_turns(mode, program), end))
    return Turns(names=names, settled=settled, is_whole=end <= FARTHEST) if names else None


def describe_turns(mode: ModeProgram, program: Program) -> dict[str, str]:
    """Return by function in which steps it runs: `steps 1, 9, 17, ...`, in the order in which steps first take them.

    There is nothing to say of a mode with one function, or with clocks that only a run knows.
    """
    turns = count_turns(mode, program) if len(mode.functions) > 1 else None
    if turns is None:
        return {}
    taken = dict.fromkeys((*turns.names, *(function.name for function in mode.functions)))
    return {name: turns.describe((name,)) for name in taken}

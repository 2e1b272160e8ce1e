"""Which functions a step can take: by the clocks that choose them in a run, from the first step on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, product
from math import lcm

from msgspec import Struct

from compiler.ir.program import Gate, ModeProgram, Program
from compiler.timing.gates import count_on, find_draws, find_sharing, find_ungated, fire, is_due, merge_alike

SHOWN = 16
"""How many steps a plan lists."""
FARTHEST = 20_000
"""The last step up to which a function is looked for."""
TIMES = 3
"""How many runs of steps of a function are named."""


class Dispatch(Struct, frozen=True):
    """What a step can take, as long as no update is skipped."""

    names: tuple[str, ...]
    """The functions: one for every alternative that can be drawn."""
    is_settled: bool
    """Whether all gates that start or end with an update are past that."""


def find_dispatches(mode: ModeProgram, program: Program) -> Iterator[Dispatch]:
    """Yield what every step can take, as long as no update is skipped.

    Yields nothing where the number of a step does not tell: where batches are of several data sets, averages take the
    place of models, or what is drawn is counted.
    """
    if program.datasets or _depends_on_more(mode.gates):
        return
    always = find_ungated(mode.gates)
    gates, alike = merge_alike(mode.gates, [always])
    functions = {frozenset(function.gated): function.name for function in mode.functions}
    drawn, sharing = find_draws(gates), find_sharing(gates)
    draws: list[dict[str, float]] = []
    for numbers in product(*drawn.values()):
        draws.append(dict(zip(drawn, numbers, strict=True)))
    counts, applied = Counter[str](), Counter[str]()
    for step in range(1, FARTHEST + 1):
        admitted, due, is_settled = dict[str, bool](), dict[str, bool](), True
        for gate in gates:
            if gate.is_counted:  # it is open by `first` and `last`, where one more update takes place
                first, last, done = gate.first or 0, gate.last, applied[gate.op]
                admitted[gate.op] = done + 1 >= first and (last is None or done < last)
                due[gate.op] = admitted[gate.op] and is_due(gate, counts[gate.op])
                is_settled = is_settled and done >= max(first, last or 0)
        names, fired = dict[str, None](), always
        for each in draws:
            opened = fire(gates, step, counts, always, due=due, draws=each)
            fired = opened.union(*map(alike.__getitem__, opened & alike.keys()))
            names[functions[fired]] = None
        yield Dispatch(tuple(names), is_settled)
        fired |= always  # nothing that counts differs between what can be drawn
        for gate in gates:
            if gate.clock == "writes" and admitted.get(gate.op, True) and not gate.counts_with:
                counts[gate.op] = count_on(gate, counts[gate.op], step, fired, others=sharing.get(gate.op, ()))
            applied[gate.op] += not fired.isdisjoint(gate.counted)


def _depends_on_more(gates: tuple[Gate, ...]) -> bool:
    """Return whether averages take the place of models, or a gate counts steps in which something is drawn."""
    drawn: set[str] = set()
    for gate in gates:
        is_drawn = bool(gate.draw) or not drawn.isdisjoint(chain(gate.counted, *gate.follows))
        if gate.clock == "averaged" or (is_drawn and (gate.every > 1 or gate.is_counted)):
            return True
        drawn.update([gate.op] if is_drawn else ())
    return False


def find_first_dispatches(mode: ModeProgram, program: Program) -> tuple[tuple[str, ...], ...]:
    """Return the functions that the first steps can take; none where the number of a step does not tell."""
    return tuple(each.names for each in islice(find_dispatches(mode, program), SHOWN))


class DispatchPattern(Struct, frozen=True):
    """The functions of the first steps, so many that what follows repeats them."""

    names: tuple[tuple[str, ...], ...]
    settled: int
    """The step from which on the functions follow a fixed pattern."""
    is_whole: bool
    """Whether there are enough steps to see the pattern."""

    def describe(self, chosen: frozenset[str]) -> str:
        """Return in words the steps that can take one of some functions: `steps 1-3, 5-7, ...`, `from step 51 on`."""
        steps = [step for step, names in enumerate(self.names, start=1) if not chosen.isdisjoint(names)]
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


def describe_assumption(mode: ModeProgram, program: Program) -> str:
    """Return what has to be the case for steps to take the functions named; empty where the clocks alone tell."""
    if not mode.undecided or next(find_dispatches(mode, program), None) is None:
        return ""
    return "the steps are those of a run that skips no update"


def describe_draws(mode: ModeProgram) -> Iterator[str]:
    """Yield how often each alternative of a mode is drawn: `views.2: in 50 % of the steps`."""
    for gate in mode.gates:
        if gate.draw:
            yield f"{gate.op}: {format_share(gate.low, gate.high, next(iter(sum(gate.follows, ())), ''))}"


def format_share(low: float, high: float, outer: str) -> str:
    """Return how often an alternative is drawn; ``outer``: the part around it, without which it is not."""
    return f"in {round(100 * (high - low), 2):g} % of the steps{outer and f' with {outer}'}"


def find_pattern(mode: ModeProgram, program: Program) -> DispatchPattern | None:
    """Return the functions of the first steps; None where the number of a step does not tell."""
    settled, period, counted = 0, 1, 1
    for gate in merge_alike(mode.gates, [find_ungated(mode.gates)])[0]:
        settled = max(settled, gate.start or 0, gate.until or 0)
        period = lcm(period, gate.every, gate.epoch or 1)
        # A clock that counts writes is as slow as what it counts, times its own interval.
        counted *= gate.every if gate.clock == "writes" else 1
    period *= counted
    names: list[tuple[str, ...]] = []
    is_whole = False
    for step, dispatch in enumerate(find_dispatches(mode, program), start=1):
        names.append(dispatch.names)
        settled = settled if dispatch.is_settled else max(settled, step + 1)
        is_whole = step >= settled + (TIMES + 1) * period
        if is_whole:
            break
    return DispatchPattern(names=tuple(names), settled=settled, is_whole=is_whole) if names else None


def describe_steps(mode: ModeProgram, program: Program) -> dict[str, str]:
    """Return by function in which steps it runs: `steps 1, 9, 17, ...`, in the order in which steps first take them.

    There is nothing to say of a mode with one function, or with clocks that only a run knows.
    """
    pattern = find_pattern(mode, program) if len(mode.functions) > 1 else None
    if pattern is None:
        return {}
    taken = dict.fromkeys(chain(*pattern.names, (function.name for function in mode.functions)))
    return {name: pattern.describe(frozenset({name})) for name in taken}

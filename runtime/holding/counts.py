"""Counts of a restored state: those that would fire ops together without a function give way to others."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.program import Gate, ModeProgram, Program
from compiler.timing.firing_sets import find_counts, lacks_functions
from runtime.support.clocks import Gates


def align_counts(program: Program, steps: Mapping[str, int], gates: Gates) -> None:
    """Change what gates have counted where ops would fire together that have no function.

    A state may be of a run whose clocks were others: another `every`, `start`, window or length of an epoch. Counts
    that these clocks never reach then become what is possible after the finished steps, as near as may be to what they
    were. Gates that count writes which may be held keep theirs: every count of them is possible.
    """
    for mode in program.modes:
        clocks = tuple(gate for gate in mode.gates if gate.clock != "averaged")
        every = {gate.op: gate.every for gate in clocks if gate.clock == "writes" and gate.op not in mode.undecided}
        if not every:
            continue
        counts, made = gates.counts.get(mode.mode, {}), steps.get(mode.mode, 0)
        now = {op: counts[op] % interval for op, interval in every.items()}
        always = _find_always(mode, clocks, program.datasets)
        if lacks_functions(clocks, always, mode.undecided, made, now):
            possible = find_counts(clocks, always, mode.undecided, made)
            nearest = min(possible, key=lambda each: sum(each[op] != now[op] for op in now))
            counts.update({op: count for op, count in nearest.items() if count != now[op]})


def _find_always(
    mode: ModeProgram, clocks: tuple[Gate, ...], datasets: tuple[str, ...]
) -> Mapping[str, frozenset[str]]:
    """Return, by data set, the ops that gates follow and that no gate holds back."""
    gated = {gate.op for gate in clocks}
    free = frozenset(op for gate in clocks for group in gate.follows for op in group if op not in gated)
    return dict.fromkeys(datasets if mode.mode == "train" and datasets else ("", *datasets), free)

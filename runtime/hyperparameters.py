"""Hyper-parameters of optimizers in words: those of a checkpoint beside those that the spec gives now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.operands import HyperParameter, ScheduleDecl
from compiler.program import OptimizerDecl
from compiler.timetable import tell_schedule
from runtime import state
from runtime.optimizer import Optimizer

SECTION = "hyperparameters"
"""The section of a checkpoint that has them. It is there to be compared: none of it is ever restored."""
RATE = "lr"


def describe_optimizers(declared: tuple[OptimizerDecl, ...], held: Mapping[str, Optimizer]) -> dict[str, state.Plain]:
    """Return every option of every optimizer in words; a learning rate that was set by hand in place of the spec's."""
    return {each.name: dict[str, state.Plain](_describe(each, held[each.name])) for each in declared}


def find_differences(saved: state.Plain, now: Mapping[str, state.Plain]) -> Iterator[str]:
    """Yield a sentence for every option that a checkpoint has otherwise; what it does not tell is not compared."""
    for name, options in now.items():
        before = saved.get(name) if isinstance(saved, dict) else None
        if isinstance(before, dict) and isinstance(options, dict):
            changed = [key for key in options if before.get(key, options[key]) != options[key]]
            yield from (f"`{key}` of optimizer '{name}' was {before[key]}, and is {options[key]}" for key in changed)


def _describe(declared: OptimizerDecl, held: Optimizer) -> Iterator[tuple[str, str]]:
    """Yield the options of an optimizer in words."""
    for key, value in declared.options.items():
        if key != RATE or not held.is_rate_set:
            yield key, _spell(value)
    if held.is_rate_set:
        yield RATE, f"{held.learning_rate!r} (set by hand)"


def _spell(value: HyperParameter) -> str:
    """Return a value, or a schedule, in words."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_spell, value))})"
    return tell_schedule(value) if isinstance(value, ScheduleDecl) else repr(value)

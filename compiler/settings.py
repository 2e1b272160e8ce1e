"""Settings: where the instructions of a program have numbers that change while training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from compiler.instructions import Apply, Blend, Evaluate, Forward, Instruction, Random, Schedule, Store, Transform
from compiler.operands import Scheduled


def find_scheduled(instruction: Instruction) -> Iterator[Scheduled]:
    """Yield the numbers of an instruction that change while training."""
    match instruction:
        case Forward():
            yield from _select(argument.operand for argument in instruction.arguments)
        case Evaluate():
            yield from _select((instruction.weight, *instruction.options.values()))
            yield from _select(argument.operand for argument in instruction.arguments)
        case Random():
            yield from _select(instruction.options.values())
        case Transform():
            yield from _select(instruction.options.values())
            yield from _select(number for each in instruction.penalties for number in (each.l1, each.l2))
        case Apply():
            yield from _select(number for each in instruction.projections for number in (each.low, each.high))
        case Schedule():
            yield instruction.number
        case Blend():
            yield from _select((instruction.decay,))
        case Store():
            yield from _select((instruction.value,))
        case _:
            return


def _select(settings: Iterable[object]) -> Iterator[Scheduled]:
    """Yield the scheduled numbers among some settings."""
    for setting in settings:
        each = cast("tuple[object, ...]", setting) if isinstance(setting, tuple) else (setting,)
        yield from (number for number in each if isinstance(number, Scheduled))

"""Settings: where the instructions of a program have numbers that change while training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from compiler.instructions import Instruction
from compiler.operands import Scheduled


def find_scheduled(instruction: Instruction) -> Iterator[Scheduled]:
    """Yield the numbers of an instruction that change while training."""
    for setting in instruction.settings:
        each = cast("tuple[object, ...]", setting) if isinstance(setting, tuple) else (setting,)
        yield from (number for number in each if isinstance(number, Scheduled))

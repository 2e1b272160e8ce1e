"""Instructions: what a function does, one after the other. The kinds: one line each in :data:`Instruction`."""

from __future__ import annotations

from typing import TypeAlias, get_args

from compiler.ir.instructions.accumulate import Collect, Drop, Gather, Guard, Judge, Restore, Settle
from compiler.ir.instructions.average import Assign, Blend, Store
from compiler.ir.instructions.base import TOGETHER, Commit, Effect, Emit, InstructionBase, Overflow, Release, Resting
from compiler.ir.instructions.evaluate import CONSTANT_CALLS, Counted, Evaluate, Random, Schedule
from compiler.ir.instructions.forward import Forward
from compiler.ir.instructions.gradient import Gradient, Recomputed, Transform
from compiler.ir.instructions.update import Apply, ApplyPart

Instruction: TypeAlias = (
    Forward
    | Evaluate
    | Random
    | Schedule
    | Gradient
    | Transform
    | Judge
    | Gather
    | Collect
    | Restore
    | Drop
    | Apply
    | Blend
    | Assign
    | Store
    | Settle
    | Release
    | Emit
)

KINDS: tuple[type[InstructionBase], ...] = get_args(Instruction)
"""Every kind."""

__all__ = [
    "CONSTANT_CALLS",
    "KINDS",
    "TOGETHER",
    "Apply",
    "ApplyPart",
    "Assign",
    "Blend",
    "Collect",
    "Commit",
    "Counted",
    "Drop",
    "Effect",
    "Emit",
    "Evaluate",
    "Forward",
    "Gather",
    "Gradient",
    "Guard",
    "Instruction",
    "InstructionBase",
    "Judge",
    "Overflow",
    "Random",
    "Recomputed",
    "Release",
    "Resting",
    "Restore",
    "Schedule",
    "Settle",
    "Store",
    "Transform",
]

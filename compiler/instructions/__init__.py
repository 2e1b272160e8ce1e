"""Instructions: what a function does, one after the other. The kinds: one line each in :data:`Instruction`."""

from __future__ import annotations

from typing import TypeAlias, get_args

from compiler.instructions.apply import Apply, ApplyPart
from compiler.instructions.base import Commit, Effect, InstructionBase, Resting
from compiler.instructions.copies import Assign, Blend
from compiler.instructions.ends import Emit, Release
from compiler.instructions.evaluate import CONSTANT_CALLS, Counted, Evaluate
from compiler.instructions.forward import Forward
from compiler.instructions.gradient import Gradient, Recomputed
from compiler.instructions.random import Random
from compiler.instructions.schedule import Schedule
from compiler.instructions.store import Store
from compiler.instructions.transform import Transform
from compiler.instructions.verdicts import Judge, Settle
from compiler.instructions.windows import Collect, Drop, Gather, Guard, Restore

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

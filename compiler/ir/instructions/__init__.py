"""Instructions: what a function does, one after the other. The kinds: one line each in :data:`Instruction`."""

from __future__ import annotations

from typing import TypeAlias, get_args

from compiler.ir.instructions.accumulate import (
    Accumulate,
    AllFinite,
    AnyFinite,
    CheckFinite,
    Guard,
    ResetAccumulator,
    ResolveOverflow,
    RestoreAccumulator,
    TakeAccumulated,
)
from compiler.ir.instructions.adapt import Adapt
from compiler.ir.instructions.average import Assign, Blend, Progress, Store
from compiler.ir.instructions.base import TOGETHER, Commit, Effect, Emit, Frozen, InstructionBase, Overflow, Release
from compiler.ir.instructions.evaluate import CONSTANT_CALLS, MASKS, Counted, Evaluate, Random, Schedule
from compiler.ir.instructions.forward import Forward
from compiler.ir.instructions.gradient import Gradient, Recomputed, Transform
from compiler.ir.instructions.start import Sent, Start
from compiler.ir.instructions.update import Apply, ApplyPart

Instruction: TypeAlias = (
    Forward
    | Evaluate
    | Random
    | Schedule
    | Gradient
    | Transform
    | Adapt
    | CheckFinite
    | AllFinite
    | AnyFinite
    | Start
    | Accumulate
    | TakeAccumulated
    | RestoreAccumulator
    | ResetAccumulator
    | Apply
    | Blend
    | Assign
    | Store
    | ResolveOverflow
    | Release
    | Emit
)

KINDS: tuple[type[InstructionBase], ...] = get_args(Instruction)
"""Every kind."""

__all__ = [
    "CONSTANT_CALLS",
    "KINDS",
    "MASKS",
    "TOGETHER",
    "Accumulate",
    "Adapt",
    "AllFinite",
    "AnyFinite",
    "Apply",
    "ApplyPart",
    "Assign",
    "Blend",
    "CheckFinite",
    "Commit",
    "Counted",
    "Effect",
    "Emit",
    "Evaluate",
    "Forward",
    "Frozen",
    "Gradient",
    "Guard",
    "Instruction",
    "InstructionBase",
    "Overflow",
    "Progress",
    "Random",
    "Recomputed",
    "Release",
    "ResetAccumulator",
    "ResolveOverflow",
    "RestoreAccumulator",
    "Schedule",
    "Sent",
    "Start",
    "Store",
    "TakeAccumulated",
    "Transform",
]

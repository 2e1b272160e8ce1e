"""The compiler: what must happen in a training step, in what order, and why."""

from __future__ import annotations

from compiler.compilation import compile_step
from compiler.observations import Observations, Observed
from compiler.pace import Pace
from compiler.plan import Plan
from compiler.program import Program

__all__ = ["Observations", "Observed", "Pace", "Plan", "Program", "compile_step"]

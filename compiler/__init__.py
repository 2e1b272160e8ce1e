"""The compiler: what must happen in a training step, in what order, and why."""

from __future__ import annotations

from compiler.compilation import compile_step
from compiler.observations import NO_TERMS, Observations, Observed, OwnTerms
from compiler.pace import Pace
from compiler.plan import Plan
from compiler.program import Program

__all__ = ["NO_TERMS", "Observations", "Observed", "OwnTerms", "Pace", "Plan", "Program", "compile_step"]

"""The compiler: what must happen in a training step, in what order, and why."""

from __future__ import annotations

from compiler.compile import compile_step
from compiler.facts.models import NO_TERMS, Observations, Observed, OwnTerms
from compiler.ir.program import Program
from compiler.plan.plan import Plan
from compiler.timing.units import Pace

__all__ = ["NO_TERMS", "Observations", "Observed", "OwnTerms", "Pace", "Plan", "Program", "compile_step"]

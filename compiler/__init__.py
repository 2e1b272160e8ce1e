"""The compiler: what must happen in a training step, in what order, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphspec.startup import import_lazily

if TYPE_CHECKING:
    from compiler.compile import compile_step
    from compiler.facts.models import NO_TERMS, Observations, Observed, OwnTerms
    from compiler.ir.program import Program
    from compiler.plan.plan import Plan
    from compiler.timing.units import Pace

__all__ = ["NO_TERMS", "Observations", "Observed", "OwnTerms", "Pace", "Plan", "Program", "compile_step"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "NO_TERMS": "compiler.facts.models:NO_TERMS",
        "Observations": "compiler.facts.models:Observations",
        "Observed": "compiler.facts.models:Observed",
        "OwnTerms": "compiler.facts.models:OwnTerms",
        "Pace": "compiler.timing.units:Pace",
        "Plan": "compiler.plan.plan:Plan",
        "Program": "compiler.ir.program:Program",
        "compile_step": "compiler.compile:compile_step",
    },
)

"""The runtime: plans become steps that run, or source files that run without this project."""

from __future__ import annotations

from runtime.api import build, emit, reopen
from runtime.step import Step, StepError, StepReport

__all__ = ["Step", "StepError", "StepReport", "build", "emit", "reopen"]

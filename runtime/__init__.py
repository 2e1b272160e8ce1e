"""The runtime: turns plans into steps that run, or into source files that run without this project."""

from __future__ import annotations

from runtime.api import build, emit
from runtime.engine.optimizer import Optimizer
from runtime.engine.report import StepReport, UpdateReport
from runtime.saved_run import reopen
from runtime.step import Step, StepError

__all__ = ["Optimizer", "Step", "StepError", "StepReport", "UpdateReport", "build", "emit", "reopen"]

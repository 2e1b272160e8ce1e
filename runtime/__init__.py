"""The runtime: turns plans into steps that run, or into source files that run without this project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphspec.startup import import_lazily

if TYPE_CHECKING:
    from runtime.api import build, emit
    from runtime.engine.optimizer import Optimizer
    from runtime.engine.report import StepReport, UpdateReport
    from runtime.saved_run import reopen
    from runtime.step import Step, StepError

__all__ = ["Optimizer", "Step", "StepError", "StepReport", "UpdateReport", "build", "emit", "reopen"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "Optimizer": "runtime.engine.optimizer:Optimizer",
        "Step": "runtime.step:Step",
        "StepError": "runtime.step:StepError",
        "StepReport": "runtime.engine.report:StepReport",
        "UpdateReport": "runtime.engine.report:UpdateReport",
        "build": "runtime.api:build",
        "emit": "runtime.api:emit",
        "reopen": "runtime.saved_run:reopen",
    },
)

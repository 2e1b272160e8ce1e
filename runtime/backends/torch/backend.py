"""The PyTorch backend."""

from __future__ import annotations

from typing import final

from compiler import Plan
from compiler.program import Program
from runtime.backend import Backend, BuildRequest, Built
from runtime.backends.torch.emission.module import emit_module
from runtime.problems import problem


@final
class TorchBackend(Backend):
    """PyTorch: eager straight-line code; torch itself is imported only to build."""

    def emit(self, program: Program) -> str:
        """Return the program as a Python file that needs torch alone."""
        return emit_module(program).text

    def build(self, plan: Plan, request: BuildRequest) -> Built:
        """Build a plan; raise SpecError (GS217) where torch is not installed or too old."""
        try:
            from runtime.backends.torch.build import build_plan
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            help = "pip install 'stepgraph[torch]'"
            raise problem("GS217", "PyTorch is not installed", help=help) from None
        return build_plan(plan, request)

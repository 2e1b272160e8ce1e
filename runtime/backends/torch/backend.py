"""The PyTorch backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from compiler import Plan
from compiler.ir.program import Program
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.bench.meter import Meter
from runtime.codegen.module import emit_module
from runtime.engine.backend import Backend, BuildRequest, Built, needing
from runtime.probe import Probe
from runtime.problems import problem
from runtime.processes import Processes


@final
class TorchBackend(Backend):
    """PyTorch: eager straight-line code; torch is only imported to build."""

    def emit(self, program: Program) -> str:
        """Return the program as a Python file that needs torch alone."""
        return emit_module(program, TORCH).text

    def build(self, plan: Plan, request: BuildRequest) -> Built:
        """Build a plan; raise SpecError: GS217 torch is not installed or too old, GS268 XLA was requested."""
        if request.jit_compile:
            help = "leave out `--xla` (`jit_compile=True`), or take `--backend tensorflow`"
            raise problem("GS268", "XLA compiles steps of TensorFlow only, this one is for PyTorch", help=help)
        with needing("PyTorch", "torch"):
            from runtime.backends.torch.build import build_plan
        return build_plan(plan, request)

    def join(self, timeout: float, device: str) -> Processes:
        """Meet the others in torch.distributed's default group. Raises SpecError (GS257) where that fails."""
        with needing("PyTorch", "torch"):
            from runtime.backends.torch.group import Group
        return Group(timeout, device)

    def launch(self, count: int, arguments: Sequence[str]) -> int:
        """Run a command line in several processes by torch's launcher."""
        with needing("PyTorch", "torch"):
            from runtime.backends.torch.group import launch
        return launch(count, arguments)

    def meter(self, device: str, threads: int | None) -> Meter:
        """Return what times steps of PyTorch."""
        with needing("PyTorch", "torch"):
            from runtime.backends.torch.meter import TorchMeter
        return TorchMeter(device, threads)

    def probe(self) -> Probe:
        """Return what PyTorch supports here; raise SpecError (GS217) where it is not installed or too old."""
        with needing("PyTorch", "torch"):
            from runtime.backends.torch.compat import is_supported
        if not is_supported():
            raise problem("GS217", "PyTorch is too old", help="pip install 'stepgraph[torch]'")
        from runtime.backends.torch.devices import probe_torch

        return probe_torch()

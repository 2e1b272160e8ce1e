"""The TensorFlow backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import final

from compiler import Plan
from compiler.ir.program import Program
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.bench.meter import Meter
from runtime.codegen.module import emit_module
from runtime.engine.backend import Backend, BuildRequest, Built, needing
from runtime.probe import Probe
from runtime.problems import problem
from runtime.processes import Processes, count_started, count_workers

SURROUNDINGS: Mapping[str, str] = {
    "KERAS_BACKEND": "tensorflow",  # Keras reads it once, when it is first imported
    "TF_CPP_MIN_LOG_LEVEL": "2",  # its notes at startup are of no use here
    "TF_ENABLE_ONEDNN_OPTS": "0",  # sums in the same order in every version; oneDNN would also print a note
}
"""Environment variables that TensorFlow reads when it is first imported, with their defaults here."""


@final
class TensorFlowBackend(Backend):
    """TensorFlow: one graph per active set, traced once; TensorFlow is only imported to build."""

    def emit(self, program: Program) -> str:
        """Return the program as a Python file that needs tensorflow alone."""
        return emit_module(program, TENSORFLOW).text

    def build(self, plan: Plan, request: BuildRequest) -> Built:
        """Build a plan; raise SpecError (GS217) where tensorflow is not installed or too old."""
        with _needing_tensorflow():
            from runtime.backends.tensorflow.build import build_plan
        return build_plan(plan, request)

    def count_started(self) -> int:
        """Return how many workers TF_CONFIG names; without it, how many processes some other launcher has started."""
        workers = count_workers()
        return count_started() if workers == 1 else workers

    def join(self, timeout: float, device: str) -> Processes:
        """Meet the other workers that TF_CONFIG names."""
        if count_workers() == 1:
            message = f"{count_started()} processes were started, and TF_CONFIG does not name them for TensorFlow"
            raise problem("GS257", message, help="start them by `--nproc`, or with TF_CONFIG in place of torchrun")
        with _needing_tensorflow():
            from runtime.backends.tensorflow.group import Workers
        return Workers(timeout)

    def launch(self, count: int, arguments: Sequence[str]) -> int:
        """Run a command line in several processes on this machine."""
        with _needing_tensorflow():
            from runtime.backends.tensorflow.group import launch
        return launch(count, arguments)

    def meter(self, device: str, threads: int | None) -> Meter:
        """Return what times steps of TensorFlow."""
        with _needing_tensorflow():
            from runtime.backends.tensorflow.meter import TensorFlowMeter
        return TensorFlowMeter(device, threads)

    def probe(self) -> Probe:
        """Return what TensorFlow supports here; raise SpecError (GS217) where it is not installed or too old."""
        with _needing_tensorflow():
            from runtime.backends.tensorflow.devices import probe_tensorflow
        return probe_tensorflow()


def _needing_tensorflow() -> AbstractContextManager[None]:
    """Set the variables that TensorFlow reads at import; report that it is missing where an import fails for that."""
    for name, value in SURROUNDINGS.items():
        os.environ.setdefault(name, value)
    return needing("TensorFlow", "tensorflow", "keras")

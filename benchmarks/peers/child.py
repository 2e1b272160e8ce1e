"""One variant in a process of its own: ``python -m benchmarks.peers.child STEP VARIANT``, orders on its input."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.peers.pace import Pace
from benchmarks.peers.variants import VARIANTS


def make_torch(name: str) -> tuple[Any, list[Any]]:
    """Return a step with its initial weights, and its batches, on PyTorch."""
    import torch

    from benchmarks.peers.steps import BATCHES, STEPS

    torch.set_num_threads(1)
    workload = STEPS[name]()
    return workload, workload.batches(BATCHES)


def make_tensorflow(name: str) -> tuple[Any, list[Any]]:
    """Return a step, and its batches, on TensorFlow."""
    import tensorflow as tf

    from benchmarks.peers.with_keras import find_step

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    workload = find_step(name)
    return workload, workload.batches()


MAKE: dict[str, Callable[[str], tuple[Any, list[Any]]]] = {"torch": make_torch, "tensorflow": make_tensorflow}


def main() -> None:
    """Serve the orders of the measurement; what libraries print goes to the standard error."""
    name, title = sys.argv[1:]
    variant = VARIANTS[title]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    workload, batches = MAKE[variant.framework](name)
    pace = Pace(batches, sys.stdin, answers, time.perf_counter())
    module, _, function = variant.code.partition(":")
    getattr(importlib.import_module(f"benchmarks.peers.{module}"), function)(workload, pace)


if __name__ == "__main__":
    main()

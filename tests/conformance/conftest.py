"""Where a framework is missing, what compares the two is left out."""

from __future__ import annotations

from importlib.util import find_spec

BOTH = (
    "test_backends.py",
    "test_checkpoints_cross.py",
    "test_random.py",
    "test_shuffle.py",
    "test_tensorflow_benchmarks.py",
    "test_traces.py",
)
collect_ignore = [] if find_spec("torch") and find_spec("tensorflow") else list(BOTH)

"""What the tests prove on a CPU, tried on another device: ``python -m tests.gpu``, or `make gpu` (docs/gpu.md)."""

from __future__ import annotations

import os
import sys

if SITE := os.environ.get("STEPGRAPH_GPU_SITE"):  # where `make gpu` has put what is not installed
    sys.path.insert(0, os.path.abspath(SITE))

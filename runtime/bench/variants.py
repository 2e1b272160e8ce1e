"""The names of the variants that are made of a spec."""

from __future__ import annotations

EMITTED, BUILT, JIT = "emitted", "step", "jit"
"""Its emitted file, what `build` gives, and `build(..., jit="step")`."""
OURS = (EMITTED, BUILT, JIT)

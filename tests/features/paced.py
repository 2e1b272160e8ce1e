"""Steps of small specs in runs whose epochs have a known length."""

from __future__ import annotations

from collections.abc import Sequence

from compiler import Pace, compile_step
from graphspec import load
from runtime import Step, build


def build_paced(text: str, backend: str, settings: Sequence[str] = (), *, epoch: int = 2, batch: int = 1) -> Step:
    """Return the step of a spec on the CPU, in double precision."""
    plan = compile_step(load(text, [*settings, "rng=portable"]), backend, pace=Pace(epoch=epoch, batch=batch))
    return build(plan, device="cpu", dtype="float64", allow=("tests",))

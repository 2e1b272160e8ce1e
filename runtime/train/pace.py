"""The pace of a spec's run, as far as it is known without importing anything named in the spec."""

from __future__ import annotations

from pathlib import Path

from compiler.timing.resolve import needs_pace
from compiler.timing.units import Pace, find_batch
from graphspec.declare.graph import GraphSpec


def find_declared_pace(spec: GraphSpec, path: Path) -> Pace | None:
    """Return the pace of training a spec read from a file; None where nothing in it depends on one.

    A part that is not known, such as the length of an epoch of a user's own source, is left out; problems with the data
    are reported by the run.
    """
    if "train" not in spec.data or not needs_pace(spec):
        return None
    from runtime import data  # imports numpy, which checking most specs does not need
    from runtime.train import loop

    epoch = data.find_length(spec, "train", path.parent)
    return Pace(epoch=epoch, batch=find_batch(spec), run=loop.find_length(spec, epoch, None))

"""The pace of a spec's run, as far as it is known without importing anything that the spec names."""

from __future__ import annotations

from pathlib import Path

from compiler.timing.resolve import needs_pace
from compiler.timing.units import Pace, find_batch
from graphspec.declare.graph import GraphSpec


def find_declared_pace(spec: GraphSpec, path: Path) -> Pace | None:
    """Return the pace of training a spec read from a file; None where nothing in it depends on one.

    A part that is not known, such as the epochs of a user's own source, is left out; a run reports what is wrong with
    the data.
    """
    if "train" not in spec.data or not needs_pace(spec):
        return None
    from runtime import data  # numpy comes with the data: most specs are checked without
    from runtime.train import loop

    epoch = data.find_length(spec, "train", path.parent)
    return Pace(epoch=epoch, batch=find_batch(spec), run=loop.find_length(spec, epoch, None))

"""Parallel: how many processes take one step together."""

from __future__ import annotations

from typing import Literal

from graphspec.declare.base import Declaration
from graphspec.declare.fields import PositiveNumber


class ParallelSpec(Declaration):
    """Several processes that take one step together, each on its own rows of the batch."""

    kind: Literal["none", "replicated", "sharded"]
    """`replicated`: every process has all weights, and gradients are added up over the processes. `sharded`: each keeps
    a part of every weight, and of what its optimizer keeps for it."""
    reduce: Literal["mean", "sum"] = "mean"
    """How gradients combine: `mean` is the step of the whole batch; `sum` adds up the gradients that each process has
    of the losses on its own rows."""
    buffers: Literal["rank0", "mean", "local"] = "rank0"
    """Whose buffers (running statistics) all processes have after a step: those of the first, their mean, or each its
    own."""
    timeout: PositiveNumber = 600
    """After how many seconds without an answer of some process `stepgraph run` ends all."""

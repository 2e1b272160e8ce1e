"""Parallel: how many processes take one step together."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from graphspec.declare.base import Declaration, below, problem
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
    bucket_mb: PositiveNumber | None = None
    """In messages of about how many megabytes gradients travel, each of which leaves as soon as its gradients are
    taken; otherwise a gradient set leaves when all of it is."""
    timeout: PositiveNumber = 600
    """After how many seconds without an answer of some process `stepgraph run` ends all."""

    @model_validator(mode="after")
    def _check_messages(self) -> ParallelSpec:
        """Refuse what would change nothing, as there are no messages of whole gradients."""
        if self.kind != "replicated" and self.bucket_mb is not None:
            why = "one process sends no gradients" if self.kind == "none" else "shards of gradients travel by layer"
            help = "remove it, or write `kind: replicated`"
            raise below(("bucket_mb",), problem("GS056", f"`bucket_mb` changes nothing: {why}", help=help, at="key"))
        return self

"""Parallel: how many processes take one step together."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.fields import Count, NumberFromZero, PositiveNumber


class CompressSpec(Declaration):
    """How gradients are shortened before they travel."""

    kind: Literal["none", "fp16", "bf16", "powersgd", "threshold", "sign"] = "none"
    """`fp16`, `bf16`: each number is rounded to 16 bits. `threshold`: two bits say whether it is sent as the threshold,
    its negative, or nothing; `sign`: one bit, as 1 or -1. `powersgd`: a matrix is sent as two thin factors."""
    threshold: NumberFromZero | None = None
    """With `threshold` what is sent of a number (default 0.5), with `sign` from where on 1 is sent (default 0)."""
    rank: Count | None = None
    """With `powersgd` how many columns the factors have (default 1)."""

    @property
    def keeps_rests(self) -> bool:
        """Return whether what is not sent is kept, and sent later."""
        return self.kind in ("powersgd", "threshold", "sign")

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        """Read the kind alone."""
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> CompressSpec:
        if self.threshold is not None and self.kind not in ("threshold", "sign"):
            raise below(("threshold",), self._unread("threshold", "`kind: threshold` and `kind: sign`"))
        if self.rank is not None and self.kind != "powersgd":
            raise below(("rank",), self._unread("rank", "`kind: powersgd`"))
        if self.kind == "threshold" and self.threshold == 0:
            raise below(
                ("threshold",), problem("GS044", "nothing is sent of a number with `threshold: 0`", help="raise it")
            )
        return self

    def _unread(self, name: str, kinds: str) -> PydanticCustomError:
        """Return the error for an option of other kinds."""
        return problem("GS056", f"`{name}` goes with {kinds}", help="remove it", at="key")


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
    compress: Deferred[CompressSpec] = CompressSpec.model_construct()
    """How gradients are shortened before they travel: `fp16`, or `{kind: threshold, threshold: 0.01}`."""
    compare_every: Count | None = None
    """After how many steps each `stepgraph run` compares what must be equal on all processes; without it never."""
    timeout: PositiveNumber = 600
    """After how many seconds without an answer of some process `stepgraph run` ends all."""

    @model_validator(mode="after")
    def _check_messages(self) -> ParallelSpec:
        """Refuse what is about messages of whole gradients, where there are none."""
        given = {"bucket_mb": self.bucket_mb is not None, "compress": self.compress.kind != "none"}
        given["compare_every"] = self.compare_every is not None
        for name in (name for name, is_given in given.items() if is_given and self.kind != "replicated"):
            help = "remove it, or write `kind: replicated`"
            raise below((name,), problem("GS056", f"`{name}` goes with `kind: replicated`", help=help, at="key"))
        if self.bucket_mb is not None and self.compress.keeps_rests:
            message = f"`bucket_mb` changes nothing with `compress: {self.compress.kind}`, which sends a set at once"
            raise below(("bucket_mb",), problem("GS056", message, help="remove it", at="key"))
        return self

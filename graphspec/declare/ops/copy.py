"""``copy``: a hard target update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from graphspec.declare.ops.base import ModeName, OpBase, Reference


class CopyOp(OpBase):
    """Copy the weights and buffers of one model into another."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    copy_: str = Field(alias="copy")
    """The model that is copied."""
    into: str
    """The model that is overwritten."""

    @property
    def kind(self) -> Literal["copy"]:
        """Return the key of this kind."""
        return "copy"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return nothing: a copy writes a model and has no value."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the two models."""
        yield Reference(path=("copy",), name=self.copy_, role="source")
        yield Reference(path=("into",), name=self.into, role="model")

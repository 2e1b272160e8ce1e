"""What is known of built-in layers once the shape of their input is: every option, size, parameter and trait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.operands import Plain, Shape
from compiler.program import LayerDecl, TensorDecl


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTraits:
    """What the schedule must know: written buffers, random draws, samples of a batch that influence each other."""

    buffers: bool = False
    rng: bool = False
    batch_coupled: bool = False

    def __or__(self, other: LayerTraits) -> LayerTraits:
        """Return the traits of two layers together."""
        return LayerTraits(
            buffers=self.buffers or other.buffers,
            rng=self.rng or other.rng,
            batch_coupled=self.batch_coupled or other.batch_coupled,
        )


PURE = LayerTraits()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """What the rule of one layer finds: its result, its options with every size, its tensors by their full names."""

    output: Shape
    dtype: str | None
    options: Mapping[str, Plain] = field(default_factory=dict[str, Plain])
    parameters: tuple[TensorDecl, ...] = ()
    buffers: tuple[TensorDecl, ...] = ()
    traits: LayerTraits = PURE
    layers: tuple[LayerDecl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLayers:
    """The layers of a model in order, the type of its result, and all its parameters and buffers in layer order."""

    layers: tuple[LayerDecl, ...]
    output: Shape
    dtype: str | None
    parameters: tuple[TensorDecl, ...]
    buffers: tuple[TensorDecl, ...]
    traits: LayerTraits

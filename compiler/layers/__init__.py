"""Built-in layers: what each becomes once the shape of its input is known."""

from __future__ import annotations

from compiler.layers.resolve import resolve_layers
from compiler.layers.resolved import LayerTraits, ResolvedLayers
from compiler.shapes.problem import ShapeProblem

__all__ = ["LayerTraits", "ResolvedLayers", "ShapeProblem", "resolve_layers"]

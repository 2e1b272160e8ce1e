"""Shapes and dtypes of values, before anything runs."""

from __future__ import annotations

from compiler.types.dimension import UNKNOWN, Place, ShapeProblem, TensorType, format_shape
from compiler.types.infer import infer_call, is_open

__all__ = ["UNKNOWN", "Place", "ShapeProblem", "TensorType", "format_shape", "infer_call", "is_open"]

"""Shapes and dtypes of values, before anything runs."""

from __future__ import annotations

from compiler.shapes.infer import infer_call, is_open
from compiler.shapes.problem import Place, ShapeProblem
from compiler.shapes.tensor_type import UNKNOWN, TensorType, format_shape

__all__ = ["UNKNOWN", "Place", "ShapeProblem", "TensorType", "format_shape", "infer_call", "is_open"]

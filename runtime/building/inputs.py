"""Inputs: the types a batch may have, whatever the framework."""

from __future__ import annotations

from compiler.ir.program import InputDecl

CONVERTED = ("float32", "float64")
"""Declared types that give way to the type a step is built for."""


def accepted_types(declared: InputDecl, built: str) -> tuple[str, ...]:
    """Return the types an input may have: as declared, or as the step is built."""
    return tuple(dict.fromkeys((declared.dtype, built))) if declared.dtype in CONVERTED else (declared.dtype,)

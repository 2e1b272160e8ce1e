"""Types of models: which parameters a step can train."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.support.model_errors import ModelError

REAL = ("float16", "bfloat16", "float32", "float64")
"""The types of parameters that can be converted into each other."""


def require_types(model: str, found: Mapping[str, str], wanted: str | None = None) -> None:
    """Raise ModelError (GS208) where parameters, type by name, are not all of one floating type: of ``wanted`` if any.

    A conversion would take half of a complex number, and undo what a model of several types is made for.
    """
    for name, dtype in found.items():
        if dtype not in REAL:
            help = "keep real and imaginary part as two parameters" if "complex" in dtype else "keep it as a buffer"
            raise ModelError("GS208", model, f"its parameter '{name}' is {dtype}, which no step trains", (), help)
    several = dict.fromkeys(found.values())
    if len(several) > 1:
        first = {dtype: next(name for name, each in found.items() if each == dtype) for dtype in several}
        types = ", ".join(f"{dtype} ('{name}')" for dtype, name in first.items())
        remedy = "make all of them in one type; split the model where its parts are to have their own"
        raise ModelError("GS208", model, f"its parameters are of several types: {types}", (), remedy)
    if wanted is not None and several and wanted not in several:
        name, dtype = next(iter(found.items()))
        offer = f', or build the step for {dtype}: `build(..., dtype="{dtype}")`' if dtype in REAL[2:] else ""
        message = f"its parameter '{name}' is {dtype}, but the step is built for {wanted}"
        raise ModelError("GS208", model, message, (), f"make it in {wanted}{offer}")

"""Accumulation: the gradients of several steps become one update."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from graphspec.declaration import Declaration, problem
from graphspec.words import describe

Steps = Annotated[int, Strict(), Field(ge=1)]


class AccumulateSpec(Declaration):
    """A window: `accumulate: 4`, or what else there is to say of it."""

    steps: Steps
    """How many steps' gradients become one update."""
    reduce: Literal["mean", "sum", "steps"] = "mean"
    """`mean`: every sample of the window counts alike; `sum`: gradients are added up; `steps`: steps count alike."""
    on_epoch_end: Literal["carry", "flush", "drop"] = "carry"
    """What becomes of a window that an epoch leaves open.

    `carry`: it goes on into the next; `flush`: the last step of the epoch applies it; `drop`: it is forgotten.
    """
    on_nonfinite: Literal["drop", "window"] = "drop"
    """What a gradient that is not finite costs, under a loss scale or with `on_overflow`: its step, or the window."""


def _spell_out(value: object) -> object:
    """Return ``{steps: 4}`` for ``4``; refuse what is neither a number of steps nor a mapping."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"steps": value}
    if isinstance(value, str | float | bool):
        message = f"expected a whole number from 1 up, or a mapping, as `accumulate`, found {describe(value)}"
        raise problem("GS041", message, help="write `accumulate: 4`, or `accumulate: {steps: 4, reduce: mean}`")
    return value


AccumulateField = Annotated[AccumulateSpec, BeforeValidator(_spell_out, json_schema_input_type=Steps | AccumulateSpec)]

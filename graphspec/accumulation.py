"""Accumulation: the gradients of several steps become one update."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from graphspec.declaration import Declaration, not_built


def _carry_only(value: object) -> object:
    if value in ("flush", "drop"):
        raise not_built(f"`on_epoch_end: {value}`", help="a window goes on into the next epoch: `on_epoch_end: carry`")
    return value


Steps = Annotated[int, Strict(), Field(ge=1)]


class AccumulateSpec(Declaration):
    """A window: `accumulate: 4`, or what else there is to say of it."""

    steps: Steps
    """How many steps' gradients become one update."""
    reduce: Literal["mean", "sum", "steps"] = "mean"
    """`mean`: every sample of the window counts alike; `sum`: gradients are added up; `steps`: steps count alike."""
    on_epoch_end: Annotated[Literal["carry"], BeforeValidator(_carry_only)] = "carry"
    """What becomes of a window that an epoch leaves open: it goes on into the next."""
    on_nonfinite: Literal["drop", "window"] = "drop"
    """What a gradient that is not finite costs, under a loss scale or with `on_overflow`: its step, or the window."""


def _spell_out(value: object) -> object:
    """Return ``{steps: 4}`` for ``4``."""
    return {"steps": value} if isinstance(value, int) and not isinstance(value, bool) else value


AccumulateField = Annotated[AccumulateSpec, BeforeValidator(_spell_out, json_schema_input_type=Steps | AccumulateSpec)]

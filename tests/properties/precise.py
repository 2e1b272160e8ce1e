"""Precision: in double precision it is off, so that no number of a spec changes by what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

TYPES = ("bfloat16", "float16", "float32")


def add_precision(draft: Draft) -> None:
    """Let the document, and some of the models, say in which type they compute; losses are not scaled by that."""
    draft.fields["precision"] = {"compute": draft.random.choice(TYPES[:2]), "loss_scale": "none"}
    for model in draft.models.values():
        if draft.chance(0.3):
            model["precision"] = draft.random.choice(TYPES)

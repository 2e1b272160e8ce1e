"""Windows that end with epochs, absent gradients and frozen groups, where there are verdicts, data sets and ties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.absent import add_gaps
from tests.properties.datasets import name_datasets
from tests.properties.epochs import MOMENTS, freeze, is_judged
from tests.properties.overflow import add_overflow
from tests.properties.windows import accumulate

if TYPE_CHECKING:
    from tests.properties.specs import Draft


TIED = ("coder", "reader")
"""Models that share a weight."""


def combine(draft: Draft) -> None:
    """Add what is not there yet of windows, verdicts, absent gradients and data sets; then end windows with epochs."""
    if not _find_windows(draft):
        accumulate(draft)
    if not is_judged(draft) and draft.chance(0.5):
        add_overflow(draft)
    if "spare" not in draft.models and draft.chance(0.4):
        add_gaps(draft)
    if not any("dataset" in op for op in draft.ops.values()) and draft.chance(0.4):
        name_datasets(draft)
    for op in _find_windows(draft):
        _end(draft, op)
    owned = sorted({model for op in draft.ops.values() for model in op.get("update", [])})
    for model in owned:
        if model not in TIED and draft.chance(0.4):
            freeze(draft, model)
    if not draft.models.keys().isdisjoint(TIED) and draft.chance(0.6):
        _freeze_tied(draft)


def _freeze_tied(draft: Draft) -> None:
    """Freeze the weight that two models share, in the words of both, and perhaps what either has beside it."""
    moment = draft.random.choice(MOMENTS)
    for model in TIED:
        match = draft.random.choice(["weight", "."])
        draft.models[model]["groups"] = [{"match": match, "frozen": {"until": moment}}]


def _find_windows(draft: Draft) -> list[dict]:
    """Return the updates that take the gradients of several steps."""
    return [op for op in draft.ops.values() if "update" in op and "accumulate" in op]


def _end(draft: Draft, op: dict) -> None:
    """Let a window end with an epoch, or do without absent gradients."""
    written = op["accumulate"]
    if draft.chance(0.7):
        is_paced = isinstance(op.get("every"), str)  # by an update that may be held: nothing is flushed then
        word = {"on_epoch_end": draft.random.choice(["drop"] if is_paced else ["flush", "flush", "drop"])}
        op["accumulate"] = {**(written if isinstance(written, dict) else {"steps": written}), **word}
    if draft.chance(0.3):
        op["missing"] = "skip"

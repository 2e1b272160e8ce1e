"""Gradients by what inner layers give, of losses behind them, and penalties on these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.joining import find_called, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft


def add_slopes(draft: Draft) -> None:
    """Add a call with a tap, its loss, the gradient of that by the tap, and a penalty on it to the loss of an update.

    Where it is not differentiated, a mean of it is watched.
    """
    found = find_called(draft)
    if found is None or _is_cast(draft, found[1]):
        return
    update, model = found
    layers = draft.models[draft.root(model)]["layers"]
    given, stem = draft.random.choice(draft.values.usable()), "probe"
    taps = draft.random.sample(range(len(layers)), draft.random.choice([1, 1, min(2, len(layers))]))
    inner = [f"{stem}_inner{tap}" for tap in taps]
    tapped = [{name: {"tap": tap}} for name, tap in zip(inner, taps, strict=True)]
    fields: dict = draft.random.choice([{}, {}, {"train": False}, {"snapshot": True}])
    wrt = draft.random.choice([inner, inner[:1]])
    slopes = [f"{stem}_slope{index}" for index in range(len(wrt))]
    ops: dict[str, dict] = {
        f"{stem}_call": {"forward": model, "inputs": given, "outputs": [stem, *tapped], **fields},
        f"{stem}_loss": {"loss": draft.random.choice(["mse", "bce_with_logits"]), "inputs": [stem, 0.25]},
        f"{stem}_slopes": {"gradient": f"{stem}_loss", "wrt": wrt, "outputs": slopes},
    }
    if draft.chance(0.35):
        watched = {f"{stem}_mean": {"metric": "mean", "inputs": slopes[0], "reset": "epoch"}}
        join(draft, update, {**ops, **watched}, f"{stem}_loss")
        return
    steep = {"loss": draft.random.choice(["mse", "huber"]), "inputs": [draft.random.choice(slopes), 0.1]}
    both = {"call": "add", "inputs": [f"{stem}_loss", f"{stem}_steep"]}
    join(draft, update, {**ops, f"{stem}_steep": steep, f"{stem}_both": both}, f"{stem}_both")


def _is_cast(draft: Draft, model: str) -> bool:
    """Return whether a model computes in another type: an inner result is a copy then, on which nothing depends."""
    return "compute" in repr(draft.fields.get("precision")) or "precision" in draft.models[model]

"""Losses of shapes that only the step knows: of inputs with free dimensions or without a shape, and of inner layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.joining import find_called, find_place, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft

LOSSES = ("mse", "l1", "huber", "cosine", "nt_xent", "bce_with_logits", "kl_div")


def add_open_losses(draft: Draft) -> None:
    """Add a loss to an update that compares what a step alone can compare."""
    if draft.chance(0.4):
        _compare_taps(draft)
        return
    found = find_place(draft)
    if found is not None:
        update, value = found
        is_bare = "micro_batches" not in draft.fields and draft.chance(0.4)
        loss = draft.random.choice(LOSSES)
        if join(draft, update, {"open_loss": {"loss": loss, "inputs": [value, "open"]}}, "open_loss"):
            draft.inputs["open"] = {} if is_bare else {"shape": ["batch", "width"]}


def _compare_taps(draft: Draft) -> None:
    """Add a loss of what one inner layer gives for two inputs, or of one of them and a number."""
    found = find_called(draft)
    if found is None:
        return
    update, model = found
    tap = draft.random.randrange(len(draft.models[draft.root(model)]["layers"]))
    ops: dict[str, dict] = {
        f"inside_{given}": {
            "forward": model, "inputs": given, "outputs": [f"behind_{given}", {f"inner_{given}": {"tap": tap}}],
        }
        for given in "xy"
    }  # fmt: skip
    other: object = draft.random.choice(["inner_y", "inner_y", 0.5])
    ops["open_loss"] = {"loss": draft.random.choice(["mse", "huber"]), "inputs": ["inner_x", other]}
    ops = ops if other == "inner_y" else {name: op for name, op in ops.items() if name != "inside_y"}
    join(draft, update, ops, "open_loss")

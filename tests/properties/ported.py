"""Random specs that leave options to the defaults of another library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

LEFT_OUT = ("lr", "weight_decay", "alpha", "momentum_form")
"""Not eps: one that is written keeps gradients of pure rounding small."""


def port(draft: Draft) -> None:
    """Write ``compat``, and take some options away that optimizers of the spec then have from there."""
    draft.fields["compat"] = draft.random.choice(["tf_keras", "tf_keras", "torch"])
    for declared in (*draft.models.values(), *draft.ops.values()):
        if "optimizer" in declared:
            declared["optimizer"] = _shorten(draft, declared["optimizer"])


def _shorten(draft: Draft, optimizer: dict) -> dict:
    """Return an optimizer without some of its options, or several by epochs."""
    if "1" in optimizer:
        return {epoch: _shorten(draft, each) for epoch, each in optimizer.items()}
    if "name" not in optimizer:
        return optimizer
    return {key: value for key, value in optimizer.items() if key not in LEFT_OUT or draft.chance(0.5)}

"""The group of parameters: some of a model's, by a pattern of their names, and what is different for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecl:
    """The parameters of a model in whose names a pattern is found, and what is different for them in updates."""

    match: str
    lr_scale: float = 1.0
    weight_decay: float | None = None
    """In place of the optimizer's; None leaves that."""
    frozen: bool = False
    """No gradient is taken for them and nothing steps them."""

"""Micro-batches of random specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

ROWS = 7
"""Rows of a batch that is split: not divisible by how many parts there are, and two for each of them at least."""


def split_batch(draft: Draft) -> None:
    """Split the batch of a step, unless something orders all of its samples."""
    if all(op.get("random") != "permutation" for op in draft.ops.values()):
        draft.fields["micro_batches"] = draft.random.choice([2, 2, 3])

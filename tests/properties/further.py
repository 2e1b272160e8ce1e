"""What is added to some random specs at the very end: all parts of the language that came after the first ones.

It is drawn behind everything else, so that a seed whose spec gets nothing of it gives the spec that it always gave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

FURTHER: tuple[Callable[[Draft], None], ...] = ()
"""Each adds ops to a draft, or fields to those that are there, and leaves it alone where it finds no place."""


def add_further(draft: Draft) -> None:
    """Add up to three of these to half of the drafts."""
    if FURTHER and draft.chance(0.5):
        for add in draft.random.sample(FURTHER, draft.random.randint(1, min(3, len(FURTHER)))):
            add(draft)

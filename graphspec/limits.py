"""Limits of a document, and of what is reported about it: more than a spec needs, less than an attacker would use."""

from __future__ import annotations

from msgspec import Struct

MOST_PROBLEMS = 100
"""The most problems that are reported; of more, those found first."""
LONGEST_MESSAGE = 1_000
"""Characters of a message, label or note; a longer one is cut."""


class Limits(Struct, frozen=True, kw_only=True):
    """Bound the size of a document in bytes, in nodes (keys, values and collections) and in nested collections."""

    bytes: int = 16 * 2**20
    nodes: int = 2_000_000
    depth: int = 64

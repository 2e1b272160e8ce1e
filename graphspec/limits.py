"""The limits of a document, and of what is told of it: what a spec may never need and an attacker would."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PROBLEMS = 100
"""How many problems are told; of a document with more, those that are found first."""
LONGEST_MESSAGE = 1_000
"""Characters of a message, label or remark; what a document makes longer is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bound the size of a document in bytes, in nodes (keys, values and collections) and in nested collections."""

    bytes: int = 16 * 2**20
    nodes: int = 2_000_000
    depth: int = 64

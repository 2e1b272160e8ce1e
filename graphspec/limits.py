"""The limits of a document: what a spec may never need and an attacker would."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bound the size of a document in bytes, in nodes (keys, values and collections) and in nested collections."""

    bytes: int = 16 * 2**20
    nodes: int = 2_000_000
    depth: int = 64

"""Write a spec back as a document: every default and every interpolation resolved, in one canonical form."""

from __future__ import annotations

from graphspec.rendering.document import render, to_plain

__all__ = ["render", "to_plain"]

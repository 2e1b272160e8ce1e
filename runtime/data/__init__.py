"""Batches: the sources that ``data:`` of a spec names, and the position of a run in them."""

from __future__ import annotations

from runtime.data.feed import AnyFeed, Feed, open_feed
from runtime.data.open import find_length, open_data, replace_source
from runtime.data.source import Batches

__all__ = ["AnyFeed", "Batches", "Feed", "find_length", "open_data", "open_feed", "replace_source"]

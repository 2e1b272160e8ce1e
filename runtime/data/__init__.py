"""Where batches come from: the sources that a spec's ``data:`` names, and the place a run has reached in them."""

from __future__ import annotations

from runtime.data.batches import Batches
from runtime.data.feed import AnyFeed, Feed, open_feed
from runtime.data.open import find_length, open_data, replace_source

__all__ = ["AnyFeed", "Batches", "Feed", "find_length", "open_data", "open_feed", "replace_source"]

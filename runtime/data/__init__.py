"""Where batches come from: the sources that a spec's ``data:`` names, and the place a run has reached in them."""

from __future__ import annotations

from runtime.data.batches import Batches
from runtime.data.feed import Feed
from runtime.data.feeding import AnyFeed, open_feed
from runtime.data.length import find_length
from runtime.data.opening import open_data
from runtime.data.replacement import replace_source

__all__ = ["AnyFeed", "Batches", "Feed", "find_length", "open_data", "open_feed", "replace_source"]

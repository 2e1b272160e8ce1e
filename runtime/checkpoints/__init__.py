"""Checkpoints: the state of a run in a folder that is written and read as a whole or not at all."""

from __future__ import annotations

from runtime.checkpoints.format import Checkpoint, read_checkpoint, write_checkpoint
from runtime.checkpoints.store import Store

__all__ = ["Checkpoint", "Store", "read_checkpoint", "write_checkpoint"]

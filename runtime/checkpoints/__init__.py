"""Checkpoints: the state of a run in a folder that is never half written and never half read."""

from __future__ import annotations

from runtime.checkpoints.content import Checkpoint
from runtime.checkpoints.read import read_checkpoint
from runtime.checkpoints.store import Store
from runtime.checkpoints.write import write_checkpoint

__all__ = ["Checkpoint", "Store", "read_checkpoint", "write_checkpoint"]

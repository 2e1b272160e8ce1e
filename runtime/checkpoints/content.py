"""What a checkpoint holds: arrays by name, and sections of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.state import Array, Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a run: its arrays by name, and everything else in named sections such as `counters`."""

    arrays: Mapping[str, Array]
    sections: Mapping[str, Plain]

"""How far a run is: what a checkpoint keeps of the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from runtime.runs.standing import Standing
from runtime.state import Plain


@dataclass(slots=True, kw_only=True)
class RunState:
    """The steps made, the seconds they took, what is due, and the best so far."""

    made: int = 0
    seconds: float = 0.0
    due: bool = False
    """An evaluation is due: it was interrupted."""
    evaluated: int = 0
    """The step of the newest evaluation."""
    best: Standing | None = None
    stop: Standing | None = None
    latest: dict[str, object] = field(default_factory=dict[str, object])
    """The latest value of every output since the last logged row; numbers, or values on the device."""
    rows: int | None = 0
    """How many rows were logged; None in a checkpoint of an older version, which does not say."""
    planned: tuple[int, ...] = ()
    """The steps of the newest checkpoints that the run writes whether it is stopped on the way or not."""

    def to_plain(self, latest: Mapping[str, float]) -> dict[str, Plain]:
        """Return it as plain data, floats exactly; ``latest`` are the latest values as numbers."""
        return {
            "step": self.made,
            "seconds": self.seconds,
            "due": self.due,
            "evaluated": self.evaluated,
            "best": None if self.best is None else self.best.to_plain(),
            "stop": None if self.stop is None else self.stop.to_plain(),
            "latest": {name: value.hex() for name, value in latest.items()},
            "rows": self.rows,
            "planned": list(self.planned),
        }

    def restore(self, kept: Mapping[str, Plain]) -> None:
        """Take over what :meth:`to_plain` gave. Raises KeyError, TypeError or ValueError for anything else."""
        self.made = cast("int", kept["step"])
        self.seconds = float(cast("float", kept["seconds"]))
        self.due = kept["due"] is True
        self.evaluated = cast("int", kept["evaluated"])
        self.best = _restored(self.best, kept["best"])
        self.stop = _restored(self.stop, kept["stop"])
        latest = cast("Mapping[str, str]", kept["latest"])
        self.latest = {name: float.fromhex(value) for name, value in latest.items()}
        self.rows = cast("int | None", kept.get("rows"))
        self.planned = tuple(cast("list[int]", kept.get("planned", ())))


def _restored(standing: Standing | None, kept: Plain) -> Standing | None:
    """Return a standing as a checkpoint kept it."""
    return standing.restored(kept) if standing is not None and isinstance(kept, dict) else standing

"""All cases, and the examples, as several processes share them, next to one: ``python -m tests.processes.long``.

Each is ten steps, the last of a smaller batch, by one, two and four processes that replicate weights or shard them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.processes.cases import LONG_RUNS, TRAINED, Run, make_step, train
from tests.processes.worker import main as start

MOST = 1e-10


def find_gap(run: Run, name: str, folder: Path) -> float:
    """Return the greatest difference of any process from one process on all rows; infinite where what they found is."""
    case = TRAINED[name]
    whole = dict(train(case, make_step(case), run.rows, steps=run.steps, last=run.last))
    gap = 0.0
    for rank in range(run.world):
        part = dict(np.load(run.path(folder, name, rank)))
        if part.keys() != whole.keys():
            return np.inf
        for key, value in whole.items():
            found, expected = part[key].astype(np.float64), value.astype(np.float64)
            is_same = (found == expected) | (np.isnan(found) & np.isnan(expected))  # infinities too
            apart = np.abs(found[~is_same] - expected[~is_same])
            gap = max(gap, float(np.where(np.isnan(apart), np.inf, apart).max(initial=0)))
    return gap


def main() -> int:
    """Train and compare all; return 1 where some process fails, or has other numbers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if start(folder, LONG_RUNS):
            return 1
        worst = 0.0
        for run in LONG_RUNS:
            for case in run.names:
                gap = find_gap(run, case, folder)
                print(f"{run.kind} {run.world} {case:<36}{gap:.1e}")
                worst = max(worst, gap)
    return int(not worst <= MOST)


if __name__ == "__main__":
    sys.exit(main())

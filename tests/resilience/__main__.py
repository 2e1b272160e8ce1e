"""Kill runs many times and tell what came of it: ``python -m tests.resilience [KILLS] [SEED]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.resilience.trials import NAMES, make_trial


def main() -> int:
    given = [int(text) for text in sys.argv[1:3]]
    kills, seed = (*given, *(50, 0)[len(given) :])
    worst = 0
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            tally = make_trial(Path(folder), name, kills, seed)
        worst += len(tally.differences)
        print(
            f"{name:8} {tally.kills:3} kills in {tally.runs:2} runs, {tally.within_write} of them inside a checkpoint "
            f"write, {tally.before_first} before the first checkpoint: {len(tally.differences)} differences",
            flush=True,
        )
        print(*tally.differences[:5], sep="\n", end="")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())

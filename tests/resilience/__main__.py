"""Kill runs many times and tell what came of it: ``python -m tests.resilience [KILLS] [SEED] [--backend NAME]``."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.resilience.processes import WARM, apart
from tests.resilience.trials import NAMES, make_trial


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.resilience", description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=50, help="for each spec (default: 50)")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--backend", choices=tuple(WARM), default="torch")
    parser.add_argument("--spec", choices=NAMES, action="append")
    wanted = parser.parse_args(given)
    worst = 0
    for name in wanted.spec or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            tally = apart(wanted.backend, make_trial, Path(folder), name, wanted.kills, wanted.seed, wanted.backend)
        worst += len(tally.differences)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kinds.items()))
        print(
            f"{name:8} {wanted.backend:10} {tally.kills:3} kills in {tally.runs:2} runs ({kinds})",
            f"{tally.within_write} inside a write, {tally.before_first} before the first checkpoint",
            f"{len(tally.differences)} differences",
            sep="; ",
            flush=True,
        )
        print(*tally.differences[:5], sep="\n", end="")
    return 1 if worst else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Run a script as `python FILE` would, and stop it after some updates: `stop_after.py UPDATES FILE ARGUMENTS`."""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path


class Enough(BaseException):
    """The script has made as many updates as were asked for."""


def main(updates: int, path: str, *arguments: str) -> None:
    """Run the script."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1
        if made == updates:
            raise Enough

    register_optimizer_step_post_hook(count)
    sys.argv[:] = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    with contextlib.suppress(Enough):
        runpy.run_path(path, run_name="__main__")
    if not made:
        raise SystemExit("the script made no update")
    print(f"{made} updates")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

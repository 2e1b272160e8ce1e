"""A process that holds the lock of a folder: it says so in a line, forks a sleeping child if asked, and waits."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from runtime.runs.lock import Lock

with Lock(Path(sys.argv[1])):
    child = os.fork() if "fork" in sys.argv else None
    if child == 0:
        time.sleep(60)
        os._exit(0)
    print(child or "held", flush=True)
    sys.stdin.read()

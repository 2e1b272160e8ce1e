"""A process that holds the lock of a folder: it says so in a line, or forks a sleeping child that does, and waits."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from runtime.train.run_folder import Lock

with Lock(Path(sys.argv[1])):
    if "fork" not in sys.argv:
        print("held", flush=True)
    elif os.fork() == 0:
        print(os.getpid(), flush=True)  # by the child, so that it is through with the fork when the line is read
        time.sleep(60)
        os._exit(0)
    sys.stdin.read()

"""Time and memory of `check` for every document that asks for much: `python -m tests.limits [NAME ...]`.

The exit code is 1 where a check takes longer than two seconds: that is for a machine that does nothing else.
"""

from __future__ import annotations

import sys

from tests.limits.documents import DOCUMENTS
from tests.limits.measuring import measure

SECONDS = 2

if __name__ == "__main__":
    slow = []
    for name in sys.argv[1:] or DOCUMENTS:
        taken = measure(name)
        print(f"{name:45} {taken}", flush=True)
        slow += [name] if taken.seconds > SECONDS else []
    sys.exit(f"longer than {SECONDS} s: {', '.join(slow)}" if slow else 0)

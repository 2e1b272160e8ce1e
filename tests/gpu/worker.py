"""The process that tries the cases: ``python -m tests.gpu.worker DEVICE UNTIL [--skip JSON] [NAME ...]``.

It prints a line of JSON before and after each case. It ends with the status AGAIN where the device can no longer be
used, as after an access to memory that is not there: a new process goes on behind the cases that are done.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from tests.gpu.case import Case, Check

AGAIN = 75
LOST = ("CUDA error", "CUDA driver", "cuDNN error", "CUBLAS_STATUS", "device-side assert")
"""What messages hold after which the context of a process is of no more use."""


def main(given: Sequence[str] | None = None) -> int:
    """Try the cases of all checks, or of those with some names, until a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("until", type=float, help="seconds since 1970")
    parser.add_argument("--skip", type=json.loads, default={}, help="how many cases are done, by check")
    parser.add_argument("--most", type=int, help="how many cases of a check are tried")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(given)
    from tests.gpu.checks import CHECKS  # only now: torch takes seconds to import

    chosen = [each for each in CHECKS if not options.names or each.name in options.names]
    settle()
    for line in try_all(chosen, options.device, options.until, options.skip, options.most):
        print(json.dumps(line), flush=True)
        if line.get("lost"):
            return AGAIN
    return 0


def settle() -> None:
    """Let float32 be float32: products and convolutions of Ampere and newer are otherwise rounded to ten bits."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def try_all(
    checks: Sequence[Check], device: str, until: float, skip: Mapping[str, int], most: int | None = None
) -> Iterator[dict[str, object]]:
    """Yield what happens: every check has its share of the time that is left, the long cases included."""
    for number, check in enumerate(checks):
        left = max(0.0, until - time.time())
        stop = time.time() + left * check.share / sum(each.share for each in checks[number:])
        cases = islice(check.cases(device), skip.get(check.name, 0), most)
        for case in cases:
            if time.time() > stop:
                yield {"check": check.name, "out_of_time": True}
                break
            yield {"check": check.name, "begin": case.name, "long": case.long}
            yield {"check": check.name, "case": case.name, **try_case(case)}
        yield {"check": check.name, "ended": True}


def try_case(case: Case) -> dict[str, object]:
    """Return what a case measured, or what is wrong, and whether the device is lost."""
    begun = time.monotonic()
    try:
        with own_output():
            cells = case.run()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return {"problem": text[:600], "lost": any(each in text for each in LOST)}
    return {"cells": [str(each) for each in cells or ()], "seconds": time.monotonic() - begun}


@contextmanager
def own_output() -> Iterator[None]:
    """Keep what a case prints out of the lines that are read."""
    kept, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = kept


if __name__ == "__main__":
    sys.exit(main())

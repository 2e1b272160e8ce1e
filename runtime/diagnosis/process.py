"""Run a part of the examination in a process of its own, so that a framework that crashes takes nothing with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

TIMEOUT = 180.0
"""Seconds after which a process counts as stuck; importing a framework from a slow disk takes most of a minute."""

# -P: nothing in the current directory takes the place of an installed module, as for the command itself.
_START = "import sys; sys.path[:] = {path!r}; from runtime.diagnosis.child import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a process found out, or why it did not."""

    found: dict[str, object] | None = None
    trouble: str = ""


def run_apart(arguments: Sequence[str], *, timeout: float = TIMEOUT) -> Report:
    """Return what :mod:`runtime.diagnosis.child` reports for arguments, or how it ended."""
    code = _START.format(path=[entry for entry in sys.path if entry])
    command = [sys.executable, "-P", "-c", code, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Report(trouble=f"nothing came of it within {timeout:g} seconds")
    errors = done.stderr.decode(errors="replace")
    if done.returncode:
        return Report(trouble=_explain(done.returncode, errors))
    try:
        return Report(found=cast("dict[str, object]", json.loads(done.stdout)))
    except ValueError:
        return Report(trouble="it printed something else than its findings")


def _explain(code: int, errors: str) -> str:
    """Return how a process ended: the signal, or the last line it printed."""
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "")
    if code < 0:
        return f"it ended the process ({_name(-code)})"
    return last or f"it ended the process (exit code {code})"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

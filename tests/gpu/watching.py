"""The parent of the processes that try cases: it notes what they say, and goes on behind a case that ends one."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.gpu.worker import AGAIN

LIMIT, LONG = 60.0, 240.0
"""How many seconds a case may take, and one that compiles."""
GRACE = 20.0
"""How many seconds a case may go on when the time for all is over."""
START = 120.0
"""How many seconds a process may take to its first line, and from one case to the next."""
MOST_ENDS = 20
"""After so many processes that ended amid a case something is thoroughly wrong."""


@dataclass(kw_only=True)
class Tally:
    """What came of a check."""

    done: int = 0
    """Cases that were tried, right or wrong."""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    rows: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    seconds: float = 0.0
    has_ended: bool = False
    is_short: bool = False
    """There was no time for all cases."""


@dataclass(kw_only=True)
class Watch:
    """What is known so far. ``command`` gives the command of a process that skips cases; news are shown."""

    command: Callable[[Mapping[str, int]], Sequence[str]]
    until: float
    show: Callable[[Mapping[str, Tally]], None] = lambda _: None
    limits: tuple[float, float, float] = (LIMIT, LONG, START)
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    trouble: str = ""
    """Why no case could be tried."""

    def run(self) -> Mapping[str, Tally]:
        """Start processes until all cases are tried, or the time is over."""
        for _ in range(MOST_ENDS):
            if self.follow():
                break
        return self.tallies

    def follow(self) -> bool:
        """Start a process, note what it says, and return whether that was all."""
        skip = {name: each.done for name, each in self.tallies.items()}
        with subprocess.Popen(self.command(skip), stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                return self.listen(process)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what it has started, such as compilers

    def listen(self, process: subprocess.Popen[str]) -> bool:
        """Note what a process says until it ends, or says nothing for too long; return whether that was all."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=pump, args=(process, lines), daemon=True).start()
        under_way, limit = None, self.limits[2]
        while True:
            try:
                line = lines.get(timeout=max(0.1, min(limit, self.until + GRACE - time.time())))
            except queue.Empty:
                return self.end(under_way, f"no end after {limit:.0f} s", is_over=time.time() > self.until)
            if line is None:
                break
            told = read(line)
            if told is not None:
                under_way = self.note(told)
                limit = self.limits[1 if told.get("long") else 0] if under_way else self.limits[2]
        status = process.wait()
        if status == 0:
            return True
        return self.end(under_way, "" if status == AGAIN else f"the process ended with status {status}")

    def note(self, told: Mapping[str, Any]) -> tuple[str, str] | None:
        """Take in a line; return the case that begins with it, by its check."""
        name = told["check"]
        tally = self.tallies.setdefault(name, Tally())
        if "begin" in told:
            return name, told["begin"]
        tally.has_ended |= "ended" in told
        tally.is_short |= "out_of_time" in told
        if "case" in told:
            tally.done += 1
            tally.seconds += told.get("seconds", 0.0)
            if "problem" in told:
                tally.problems[told["case"]] = told["problem"]
            elif told["cells"]:
                tally.rows[told["case"]] = told["cells"]
        self.show(self.tallies)
        return None

    def end(self, under_way: tuple[str, str] | None, reason: str, *, is_over: bool = False) -> bool:
        """Note that a process ended amid a case; return whether no other is to follow."""
        if under_way is not None:
            check, case = under_way
            if is_over:
                self.tallies[check].is_short = True
            else:
                self.tallies[check].done += 1
                self.tallies[check].problems[case] = reason
            self.show(self.tallies)
        elif reason:
            self.trouble = reason
            return True
        return is_over


def pump(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    """Put the lines of a process into a queue, and None at their end."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def read(line: str) -> Mapping[str, Any] | None:
    """Return what a line tells; None where something else printed it."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "check" in told else None


def command(
    device: str, until: float, names: Sequence[str], most: int | None
) -> Callable[[Mapping[str, int]], list[str]]:
    """Return what gives the command of a process that tries cases."""
    limits = [] if most is None else ["--most", str(most)]
    begin = [sys.executable, "-m", "tests.gpu.worker", device, str(until), *names, *limits]
    return lambda skip: [*begin, "--skip", json.dumps(skip)]

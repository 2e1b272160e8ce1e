"""Check a document in a process of its own, under limits of time and memory, and say what it took."""

from __future__ import annotations

import contextlib
import io
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runtime.cli import execute
from tests.limits.documents import DOCUMENTS
from tests.resilience.processes import SERVER

MEMORY = 2 * 2**30
SECONDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a check took: seconds of CPU, megabytes beside those of the process before, and what was printed."""

    code: int
    seconds: float
    megabytes: float
    printed: int
    first: str

    def __str__(self) -> str:
        return f"{self.seconds:7.2f} s {self.megabytes:7.0f} MB {self.printed:9,} chars  {self.code}  {self.first[:70]}"


def measure(name: str) -> Taken:
    """Return what checking a document takes, in a process that is forked from one that has imported the command.

    A process of its own keeps the documents apart, and the limit of its memory from what a test runner has loaded.
    """
    text = DOCUMENTS[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.{'json' if text.startswith('{') else 'yaml'}")
        path.write_text(text, encoding="utf-8")
        del text
        told = Path(folder, "told")
        child = SERVER.Process(target=_check, args=(path, told))
        child.start()
        child.join()
        found = told.read_text(encoding="utf-8", errors="replace") if told.exists() else f"{SECONDS} 0\n"
    used, _, printed = found.partition("\n")
    seconds, megabytes = map(float, used.split())
    code = child.exitcode
    child.close()
    return Taken(
        code=99 if code is None else code,
        seconds=seconds,
        megabytes=megabytes,
        printed=len(printed),
        first=printed.partition("\n")[0],
    )


def _check(path: Path, told: Path) -> None:
    """Check a file as the command does, write what it took, and leave the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    before = resource.getrusage(resource.RUSAGE_SELF)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = execute(["check", str(path)])
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    used = f"{seconds} {(after.ru_maxrss - before.ru_maxrss) / 1024}\n"
    told.write_text(used + output.getvalue(), encoding="utf-8")
    sys.exit(code)

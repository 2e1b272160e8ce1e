"""Trains every pattern in two ways, by hand and as a spec, and prints a table: ``python -m tests.processes.patterns``.

Each cell comes from two new processes on gloo, as some end with an error or hang. Exits with 1 where a spec is not
right, or where docs/processes.md has another cell.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch.distributed as dist

from tests.processes.patterns.by_hand import DDP, Alone, Loop
from tests.processes.patterns.table import (
    KINDS,
    MOST,
    OURS,
    PATTERNS,
    WORLD,
    WRAPPERS,
    Pattern,
    Weights,
    find_gap,
    find_truth,
    read_page,
    train_by_hand,
    train_spec,
)

PATIENCE = 20
"""After so many seconds processes hang; none needs more than one or two."""
MISSING, REMEDY = "not installed", "what is right under DDP"
COLUMNS = (*WRAPPERS, REMEDY, OURS)
Work = Callable[[int], Weights]
"""What a process does, by its rank."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What comes of a pattern, and the message where it is an error."""

    said: str
    message: str = ""


def find_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def take_part(work: Work, rank: int, port: int, folder: Path) -> None:
    """Write the weights that a process ends with, or when and how it failed."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
    os.environ.update({**where, "RANK": str(rank), "WORLD_SIZE": str(WORLD)})  # Accelerate reads these
    warnings.simplefilter("ignore")
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=3 * PATIENCE))
        np.savez(folder / f"{rank}.npz", allow_pickle=False, **work(rank))
        dist.barrier()
    except Exception as error:
        text = f"{time.monotonic()} {type(error).__name__}: {error}"
        (folder / f"{rank}.error").write_text(text, encoding="utf-8")


def fork(work: Callable[[Path], None], output: Path) -> int:
    """Return the id of a new process that does something; what libraries print there goes to a file."""
    child = os.fork()
    if not child:
        file = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        work(output.parent)
        os._exit(0)
    return child


def wait(children: Sequence[int]) -> list[int | None]:
    """Return how each child ended, or None for those that still run after a while, which are killed."""
    ended: dict[int, int] = {}
    until = time.monotonic() + PATIENCE
    while len(ended) < len(children) and time.monotonic() < until:
        for child in {*children} - {*ended}:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                ended[child] = status
        time.sleep(0.02)
    for child in {*children} - {*ended}:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return [ended.get(child) for child in children]


def find_outcome(pattern: Pattern, work: Work) -> Outcome:
    """Train a pattern in new processes, and say what comes of it."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), find_port()
        children = [fork(partial(take_part, work, rank, port), folder / f"{rank}.output") for rank in range(WORLD)]
        ended = wait(children)
        for rank, status in enumerate(ended):
            if status and os.WIFSIGNALED(status):
                printed = (folder / f"{rank}.output").read_text(encoding="utf-8", errors="replace")
                message = next((line for line in printed.splitlines() if "what():" in line), printed)
                return Outcome(said=f"aborts ({signal.Signals(os.WTERMSIG(status)).name})", message=shorten(message))
        failed = [each.read_text(encoding="utf-8").split(" ", 2) for each in folder.glob("*.error")]
        if failed:  # the first one: it ends the others
            _, kind, message = min(failed, key=lambda words: float(words[0]))
            return Outcome(said=f"raises {kind.removesuffix(':')}", message=shorten(message))
        if None in ended:
            return Outcome(said="hangs")
        return judge(pattern, [dict(np.load(folder / f"{rank}.npz")) for rank in range(WORLD)])


def shorten(message: str) -> str:
    """Return the first sentence of a message."""
    return message.strip().partition("\n")[0].removeprefix("what():").partition(". ")[0].strip()


def judge(pattern: Pattern, found: Sequence[Weights]) -> Outcome:
    """Say how the weights of processes compare with those of one process on all rows."""
    truth, moved = find_truth(pattern)
    gap = max(find_gap(each, truth) for each in found)
    if gap <= MOST:
        return Outcome(said="right")
    differ = ", processes differ" if find_gap(*found) > MOST else ""
    return Outcome(said=f"wrong by {100 * gap / moved:.0f} %{differ}")


def try_loop(pattern: Pattern, loop: Loop, make: Callable[[], Alone]) -> Outcome:
    """Say what comes of a loop by hand under a wrapper, which each process makes for itself."""
    return find_outcome(pattern, lambda rank: train_by_hand(pattern, loop, make(), rank, WORLD))


def try_by_hand(pattern: Pattern, wrapper: str) -> Iterator[tuple[str, Outcome]]:
    """Yield what comes of each way to write the loop under a wrapper."""
    make = WRAPPERS[wrapper]
    for how, loop in pattern.loops.items():
        yield how, try_loop(pattern, loop, make)
        for words, options in pattern.options.items():
            yield words, try_loop(pattern, loop, partial(make, **options))


def try_spec(pattern: Pattern) -> Iterator[tuple[str, Outcome]]:
    """Yield what comes of the spec with replicas and with shards."""
    for kind in KINDS:
        yield kind, find_outcome(pattern, lambda rank, kind=kind: train_spec(pattern, kind, rank, WORLD))


def write_cell(outcomes: Mapping[str, Outcome]) -> tuple[str, str]:
    """Return what is said of the ways to write a pattern, once where it is the same of all, and the first message."""
    said = {how: each.said for how, each in outcomes.items()}
    message = next((each.message for each in outcomes.values() if each.message), "")
    if len({*said.values()}) == 1:
        return next(iter(said.values())), message
    return "; ".join(f"{how}: {each}" if how else each for how, each in said.items()), message


def find_cells(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of a row, what they say, and the messages of errors."""
    for wrapper in WRAPPERS:
        if wrapper == "Accelerate" and find_spec("accelerate") is None:
            yield wrapper, MISSING, ""
        else:
            yield wrapper, *write_cell(dict(try_by_hand(pattern, wrapper)))
    if pattern.remedy:
        outcome = try_loop(pattern, pattern.remedy, DDP)
        yield REMEDY, pattern.says if outcome.said == "right" else outcome.said, outcome.message
    else:
        yield REMEDY, "the same loop", ""
    yield OURS, *write_cell(dict(try_spec(pattern)))


def main() -> int:
    """Print the table, and the messages of the errors."""
    page, problems, messages = read_page(), list[str](), list[str]()
    print("| " + " | ".join(("pattern", *COLUMNS)) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|", flush=True)
    for pattern in PATTERNS:
        cells: list[str] = []
        for column, said, message in find_cells(pattern):
            cells.append(said)
            messages += [f"{column}, {pattern.title}: {message}"] if message else []
            known = page.get(pattern.title, {}).get(column)
            if said not in (known, MISSING) or (column == OURS and said != "right"):
                problems.append(f"{column}, {pattern.title}: {said!r}, but the page has {known!r}")
        print("| " + " | ".join((pattern.title, *cells)) + " |", flush=True)
    print("", *messages, "", *problems, sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

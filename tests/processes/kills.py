"""Kill processes of runs and tell what came of it: ``python -m tests.processes.kills [KILLS] [--seed S]`` (Linux).

`stepgraph run --nproc` or torchrun starts a run of several processes. At a random moment a random process gets
SIGKILL. Then the run must end in time, with one message that names the lost process, and leave no process behind. Its
newest checkpoint must be whole. Resumed, it must end as the run that was not disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from tests.processes.hard import EXACT, HARD, KINDS, LENGTH, TIMEOUT, write
from tests.resilience.trials import compare_checkpoints, list_files, without_times

ROOT = Path(__file__).parents[2]
Launcher = Literal["nproc", "torchrun"]
Stage = Literal["before the first checkpoint", "in a checkpoint", "between checkpoints"]
MARK = "STEPGRAPH_TRIAL"
"""The variable of the environment by which the processes of a trial are found."""
PAUSE = "0.015"
"""Seconds that a sample takes, and a wait for the disk, so that training and writing take longer than the start."""
RESTARTS = 5
"""How often torchrun starts the processes again."""
MOST = 5
"""Fewer kills than this hit one run."""
LONGEST = 0.15
"""Seconds from the beginning of a write in which a kill is meant to hit it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a trial runs: how processes share a step, how many there are, and who starts them."""

    kind: str
    count: int
    launcher: Launcher

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.kind} {self.count} {self.launcher}"


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A process that was killed, when, and what came of it."""

    rank: int
    stage: Stage
    is_recorded: bool
    """Whether the run had written its record."""
    seconds: float
    """Until all processes of the attempt had ended."""
    said: str
    """What they said."""

    @property
    def named(self) -> frozenset[int]:
        """Return the processes that a message calls lost; with the one that is, others may not have noticed by then."""
        found = re.search(r"without an answer: rank ([\d, ]+)\n|rank (\d+) of \d+ has ended by SIGKILL", self.said)
        return frozenset(int(each) for each in (found[1] or found[2]).split(",")) if found else frozenset()


@dataclass(kw_only=True)
class Tally:
    """What happened in a trial."""

    kills: list[Kill] = field(default_factory=list[Kill])
    faults: list[str] = field(default_factory=list[str])
    """What was not as it must be."""


def find_processes(mark: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the living processes of a trial, each with its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        given = dict(each.partition("=")[::2] for each in text.split("\0") if each)
        if given.get(MARK) == mark:
            yield int(path.parent.name), given


def find_ranks(mark: str, attempt: int) -> dict[int, int]:
    """Return the process of each rank that a launcher has started in an attempt."""
    return {
        int(given["RANK"]): pid
        for pid, given in find_processes(mark)
        if "RANK" in given and given.get("TORCHELASTIC_RESTART_COUNT", "0") == str(attempt)
    }


def is_writing(out: Path) -> bool:
    """Tell whether a checkpoint is being written, moved or removed."""
    try:
        return any(name.startswith(".") for name in os.listdir(out / "checkpoints"))
    except FileNotFoundError:
        return False


def find_stage(out: Path) -> Stage:
    """Return what a run is at."""
    if is_writing(out):
        return "in a checkpoint"
    return "between checkpoints" if Store(out / "checkpoints", 1).steps() else "before the first checkpoint"


@dataclass(kw_only=True)
class Started:
    """A run that was started, with the file that it prints into."""

    process: subprocess.Popen[bytes]
    mark: str
    out: Path
    printed: Path

    def is_running(self) -> bool:
        """Tell whether its launcher has not ended."""
        return self.process.poll() is None

    def wait_until(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait for something for some time at most; tell whether it is there before the run ends."""
        end = time.monotonic() + seconds
        while self.is_running() and time.monotonic() < end:
            if is_there():
                return True
            time.sleep(0.002)
        return False

    def end(self, seconds: float = 240) -> int:
        """Return its exit code; where it does not end, its processes are killed."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            for pid, _ in find_processes(self.mark):
                os.kill(pid, signal.SIGKILL)
            return self.process.wait() and 124


def start(folder: Path, setting: Setting, *options: str) -> Started:
    """Start a run in a folder, in a group of processes of its own."""
    words = ["run", "line.yaml", "--out", "out", "--plain", "--allow", "sources", *options]
    agent = ["-m", "torch.distributed.run", "--standalone", "--max-restarts", str(RESTARTS)]
    if setting.launcher == "nproc":
        command = ["-m", "runtime", *words, "--nproc", str(setting.count)]
    else:
        command = [*agent, "--nproc-per-node", str(setting.count), "-m", "runtime", *words]
    printed, mark = folder / "printed.txt", f"{folder}-{time.monotonic_ns()}"
    given = {**os.environ, MARK: mark, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PAUSE": PAUSE}
    with printed.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=given, stdout=file, stderr=file, start_new_session=True
        )
    return Started(process=process, mark=mark, out=folder / "out", printed=printed)


def strike(started: Started, setting: Setting, life: float, drawn: random.Random, attempt: int) -> Kill | str | None:
    """Kill a random process of an attempt at a random moment, and wait until the others have ended.

    Every third kill is meant to hit a write. Returns what is wrong where the others do not end in time, and None where
    the run had ended before.
    """
    rank, ranks = drawn.randrange(setting.count), dict[int, int]()
    delay, write, late = drawn.uniform(0, life), drawn.randrange(1, LENGTH // 4), drawn.uniform(0, LONGEST)
    is_in_write = drawn.random() < 1 / 3

    def find() -> bool:
        ranks.update(find_ranks(started.mark, attempt))
        return rank in ranks

    if not is_in_write:
        started.wait_until(lambda: False, delay)
    if not started.wait_until(find, 60):
        return None
    if is_in_write:
        for _ in range(write):
            started.wait_until(lambda: not is_writing(started.out), 2 * life)
            started.wait_until(lambda: is_writing(started.out), 2 * life)
        time.sleep(late)
    before = started.printed.stat().st_size
    is_recorded, stage = (started.out / "run.json").exists(), find_stage(started.out)
    try:
        os.kill(ranks[rank], signal.SIGKILL)
    except ProcessLookupError:
        return None
    begun = time.monotonic()
    if not started.wait_until(lambda: not find_ranks(started.mark, attempt), TIMEOUT) and started.is_running():
        return f"{setting}: rank {rank} was killed {stage}, and ranks {sorted(find_ranks(started.mark, attempt))} live"
    seconds = time.monotonic() - begun
    if setting.launcher == "nproc":
        started.end(TIMEOUT)
    else:  # what torchrun says comes when all have ended
        started.wait_until(lambda: b"(exitcode: " in started.printed.read_bytes()[before:], 5)
    said = started.printed.read_bytes()[before:].decode(errors="replace")
    return Kill(rank=rank, stage=stage, is_recorded=is_recorded, seconds=seconds, said=said)


def check_said(kill: Kill, setting: Setting) -> Iterator[str]:
    """Yield what is wrong with what was said after a kill: it must be one message, which names the lost process.

    torchrun says by itself which process it has lost; where the others were still starting, they need not.
    """
    told = re.findall(r"error\[(\w+)\]", kill.said)
    if told != ["GS259"] and (setting.launcher == "nproc" or told):
        yield f"{len(told)} messages: {told}"
    if told and kill.rank not in kill.named:
        yield "the message does not name the lost process"
    is_logged = f"(exitcode: -9) local_rank: {kill.rank} " in kill.said
    if setting.launcher == "torchrun" and not is_logged and kill.rank not in kill.named:
        yield "torchrun does not name the lost process"
    for each in ("Traceback", "internal error", "interrupted"):
        if each in kill.said:
            yield f"it says {each!r}"


def look(out: Path) -> int:
    """Return the step of the newest checkpoint, which must read back whole; -1 without one."""
    steps = Store(out / "checkpoints", 1).steps()
    if steps:
        assert read_checkpoint(Store(out / "checkpoints", 1).path(steps[-1])).sections["origin"]["step"] == steps[-1]
    return steps[-1] if steps else -1


def compare(whole: Path, out: Path) -> Iterator[str]:
    """Yield in what the folders of two ended runs differ, apart from times and from what a record says of its start."""
    if list_files(whole) != list_files(out):
        yield f"files {sorted({*list_files(whole)} ^ {*list_files(out)})}"
        return
    for path in sorted((whole / "checkpoints").iterdir()):
        found = read_checkpoint(path), read_checkpoint(out / "checkpoints" / path.name)
        yield from (f"{path.name}: {each}" for each in compare_checkpoints(*found))
    for name in ("metrics.jsonl", "metrics.csv"):
        if without_times(whole / name) != without_times(out / name):
            yield name
    yield from check_rows(out)


def check_rows(out: Path) -> Iterator[str]:
    """Yield that the log lacks a step, or has one twice."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if "error" in row]
    if steps != [*range(1, LENGTH + 1)]:
        yield f"the log has the steps {steps}"


def run_whole(folder: Path, setting: Setting) -> tuple[Path, float]:
    """Run without a kill; return the folder of the run, and how long it lived."""
    write(folder, HARD, setting.kind)
    begun = time.monotonic()
    code = start(folder, setting).end()
    assert code == 0, (folder / "printed.txt").read_text()
    return folder / "out", time.monotonic() - begun


def make_trial(folder: Path, setting: Setting, whole: Path, life: float, drawn: random.Random) -> Tally:
    """Run once, killed once or more, and compare the end with that of the run that was not killed."""
    write(folder, HARD, setting.kind)
    tally = Tally()
    wanted = drawn.randrange(1, MOST)
    newest, attempt, started = -1, 0, start(folder, setting)
    while len(tally.kills) < wanted:
        kill = strike(started, setting, life, drawn, attempt)
        if isinstance(kill, str):
            tally.faults.append(kill)
            started.end(1)
            return tally
        if kill is None:
            if tally.kills:
                break
            code = started.end()  # it was over before: another run
            assert code == 0, started.printed.read_text()
            shutil.rmtree(folder)
            return make_trial(folder, setting, whole, life, drawn)
        tally.kills.append(kill)
        where = f"{setting}: rank {kill.rank} killed {kill.stage}"
        tally.faults += [f"{where}: {each}\n{kill.said}" for each in check_said(kill, setting)]
        reached = look(started.out)
        if reached < newest:
            tally.faults.append(f"{where}: step {newest} was saved, and only {reached} is left")
        newest = reached
        if setting.launcher == "torchrun":
            attempt += 1
            continue
        if started.is_running() or started.process.returncode != 1:
            tally.faults.append(f"{where}: exit code {started.process.returncode}\n{kill.said}")
        resumed = ["--resume"] if (started.out / "run.json").exists() else []
        started = start(folder, setting, *resumed)
    code = started.end()
    if code:
        tally.faults.append(f"{setting}: it ends with code {code}\n{started.printed.read_text()}")
        return tally
    if left := [pid for pid, _ in find_processes(started.mark)]:
        tally.faults.append(f"{setting}: processes are left: {left}")
    stages = ", ".join(f"rank {each.rank} {each.stage}" for each in tally.kills)
    tally.faults += [f"{setting} ({stages}): another {each}" for each in compare(whole, started.out)]
    return tally


def kill_runs(folder: Path, kills: int, seed: int, settings: Sequence[Setting], jobs: int) -> Tally:
    """Kill so often at least, in one setting after another, some runs at once; return what happened in all."""
    shared = dict.fromkeys((each.kind, each.count) for each in settings)
    with ThreadPoolExecutor(jobs) as pool:
        wholes = dict(
            zip(
                shared,
                pool.map(
                    lambda key: run_whole(
                        folder / f"whole-{key[0]}-{key[1]}", Setting(kind=key[0], count=key[1], launcher="nproc")
                    ),
                    shared,
                ),
                strict=True,
            )
        )
        total, numbers = Tally(), itertools.count()

        def work(_: int) -> None:
            """Make trials until there have been enough kills."""
            while len(total.kills) < kills:
                number = next(numbers)
                setting = settings[number % len(settings)]
                whole, life = wholes[setting.kind, setting.count]
                tally = make_trial(folder / f"trial-{number}", setting, whole, life, random.Random(f"{seed} {number}"))
                total.kills += tally.kills
                total.faults += tally.faults
                stages = ", ".join(f"rank {each.rank} {each.stage}" for each in tally.kills)
                print(
                    f"{number:3} {setting}: {stages}; {len(tally.faults)} faults", *tally.faults, sep="\n", flush=True
                )

        list(pool.map(work, range(jobs)))
    return total


CHAIN = ((2, 7), (1, 13), (4, 18), (2, LENGTH))
"""The processes of the parts of a run, and the step after which each ends."""


def make_chain(folder: Path, kind: str, text: str) -> float:
    """Let a run go on with other numbers of processes; return the greatest difference from two that take all steps.

    SIGTERM to its launcher ends the first part, Ctrl-C the third, about where it should end; `--steps` the second.
    """
    whole, broken = folder / f"whole-{kind}", folder / f"chain-{kind}"
    for each in (whole, broken):
        write(each, text, kind)
    assert start(whole, Setting(kind=kind, count=2, launcher="nproc")).end() == 0, (whole / "printed.txt").read_text()
    for number, (count, last) in enumerate(CHAIN):
        options = [*(["--resume"] if number else []), *(["--steps", str(last)] if number % 2 else [])]
        given = [*options, *(["--steps", str(LENGTH)] if number == 2 else [])]
        started = start(broken, Setting(kind=kind, count=count, launcher="nproc"), *given)
        if number % 2 == 0:
            started.wait_until(functools.partial(has_logged, started.out, last), 120)
            if number == 0:
                os.kill(started.process.pid, signal.SIGTERM)
            else:
                os.killpg(started.process.pid, signal.SIGINT)
        code = started.end()
        assert code == (0 if number % 2 else 130), started.printed.read_text()
    assert not [*check_rows(broken / "out")]
    return find_gap(whole / "out", broken / "out")


def has_logged(out: Path, step: int) -> bool:
    """Tell whether a run has logged a step."""
    path = out / "metrics.jsonl"
    return path.exists() and f'"step": {step},' in path.read_text()


def find_gap(whole: Path, out: Path) -> float:
    """Return the greatest difference of the last checkpoints and rows of two runs; infinite where names differ."""
    found = [read_checkpoint(Store(each / "checkpoints", 1).path(LENGTH)) for each in (whole, out)]
    if list_names(found[0]) != list_names(found[1]):
        return np.inf
    pairs = [(array, found[1].arrays[name]) for name, array in found[0].arrays.items()]
    rows = [[json.loads(line) for line in (each / "metrics.jsonl").read_text().splitlines()] for each in (whole, out)]
    if [row.keys() for row in rows[0]] != [row.keys() for row in rows[1]]:
        return np.inf
    pairs += [
        (np.array(value), np.array(rows[1][number][name]))
        for number, row in enumerate(rows[0])
        for name, value in row.items()
        if name != "time"
    ]
    return max(float(np.abs(one.astype(float) - other.astype(float)).max(initial=0)) for one, other in pairs)


def list_names(checkpoint: Checkpoint) -> object:
    """Return the arrays of a checkpoint, and what it counts."""
    return sorted(checkpoint.arrays), checkpoint.sections["counters"], checkpoint.sections["data"]


def report(tally: Tally) -> None:
    """Print the figures of all kills."""
    stages = Counter(each.stage for each in tally.kills)
    begun = sum(not each.is_recorded for each in tally.kills)
    ranks = sorted(Counter(each.rank for each in tally.kills).items())
    print(
        f"{len(tally.kills)} kills ({', '.join(f'{stages[each]} {each}' for each in get_args(Stage))};",
        f"{begun} before the run had written its record), of ranks {', '.join(f'{n} x {r}' for r, n in ranks)};",
        f"{sum(len(each.named) > 1 for each in tally.kills)} messages name others, too;",
        f"the longest end took {max((each.seconds for each in tally.kills), default=0):.1f} s of {TIMEOUT};",
        f"{len(tally.faults)} faults",
    )


def main(given: Sequence[str] | None = None) -> int:
    """Kill and resume; return 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes.kills", description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=50, help="how many at least (default: 50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=tuple(KINDS), action="append", help="how processes share a step")
    parser.add_argument("--count", type=int, choices=(2, 4), action="append", help="how many processes")
    parser.add_argument("--launcher", choices=get_args(Launcher), action="append")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (default: 2)")
    parser.add_argument("--no-chains", action="store_true", help="leave out runs that change their number of processes")
    wanted = parser.parse_args(given)
    settings = [
        Setting(kind=kind, count=count, launcher=launcher)
        for count in wanted.count or (2, 4, 2)
        for launcher in wanted.launcher or get_args(Launcher)
        for kind in wanted.kind or KINDS
    ]
    random.Random(wanted.seed).shuffle(settings)
    with tempfile.TemporaryDirectory() as folder:
        faults = 0
        if wanted.kills:
            tally = kill_runs(Path(folder), wanted.kills, wanted.seed, settings, wanted.jobs)
            report(tally)
            faults += len(tally.faults)
        for name, text, most in () if wanted.no_chains else (("exact", EXACT, 0.0), ("hard", SMOOTH, 1e-12)):
            for kind in ("replicated", "sharded"):
                gap = make_chain(Path(folder) / name, kind, text)
                print(f"{name} {kind}, processes 2 to 1 to 4 to 2: greatest difference {gap:.1e}", flush=True)
                faults += not gap <= most
    return int(faults > 0)


SMOOTH = HARD.replace(", {dropout: 0.3}", "").replace(" eval: 10 steps,", "")
"""What layers draw is keyed by the process, so that other numbers of processes have other masks.

A part of a run that is complete, as by `--steps`, is evaluated at its end, which is one more row.
"""

if __name__ == "__main__":
    sys.exit(main())

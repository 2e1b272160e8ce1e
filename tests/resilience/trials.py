"""A trial: one spec run without a break, and again while it is killed at random moments; both must end alike."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from tests.resilience import processes

SPECS = Path(__file__).parent / "specs"
NAMES = ("gan", "ema", "td3", "dropout")


@dataclass(slots=True)
class Tally:
    """What happened in a trial."""

    kills: int = 0
    within_write: int = 0
    """Kills that left a checkpoint half written or half removed."""
    before_first: int = 0
    """Kills before the first checkpoint."""
    runs: int = 0
    differences: list[str] = field(default_factory=list)


def prepare(folder: Path, name: str) -> Path:
    """Write a spec and its data into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SPECS / f"{name}.yaml", folder / "spec.yaml")
    drawn = np.random.default_rng(7)
    x = drawn.normal(size=(300, 12))
    np.savez(folder / "points.npz", x=x, y=np.abs(x[:, :4]).argmax(axis=1))
    columns = {"state": 3, "action": 1, "reward": 1, "next_state": 3}
    arrays = {key: drawn.normal(size=(256, width)) for key, width in columns.items()}
    np.savez(folder / "transitions.npz", going=(drawn.random((256, 1)) < 0.9).astype(float), **arrays)
    return folder


def command(*more: str) -> list[str]:
    """Return the command line of a run."""
    return ["run", "spec.yaml", "--out", "out", "--plain", *more]


def make_whole(folder: Path) -> tuple[float, float]:
    """Run a spec without a break; return the seconds until it trains, and those until its end."""
    processes.run(["--version"], folder)  # so that no trial waits for the framework to be imported
    start, record = time.monotonic(), folder / "out" / "run.json"
    begun: list[float] = []

    def watch(process: processes.Process) -> bool:
        while process.is_alive() and not record.exists():
            process.join(0.005)
        begun.append(time.monotonic() - start)
        return False

    ended = processes.run(command(), folder, watch)
    assert ended.code == 0, ended.output
    return begun[0], time.monotonic() - start


def make_broken(folder: Path, times: tuple[float, float], kills: int, drawn: random.Random, tally: Tally) -> None:
    """Run a spec while it is killed again and again, at most so often in all, until it comes to its end."""
    tally.runs += 1
    newest = -1
    while True:
        resumed = ["--resume"] if (folder / "out" / "run.json").exists() else []
        if not resumed:
            shutil.rmtree(folder / "out", ignore_errors=True)
        moment = choose_moment(folder / "out" / "checkpoints", times, drawn) if tally.kills < kills else None
        ended = processes.run(command(*resumed), folder, moment)
        if ended.code == 0:
            return
        assert ended.code == -signal.SIGKILL, ended.output
        tally.kills += 1
        reached = look(folder / "out", tally)
        assert reached >= newest, f"step {newest} was saved, only {reached} is left"
        newest = reached


def choose_moment(checkpoints: Path, times: tuple[float, float], drawn: random.Random) -> processes.Moment:
    """Return a random moment: any, most of them while it trains; every second one within the next checkpoint write."""
    begun, end = times
    delay = drawn.uniform(0.7 * begun, begun + 0.5 * (end - begun))
    writing = drawn.random() < 0.5

    def wait_for(process: processes.Process) -> bool:
        process.join(delay)
        while writing and process.is_alive() and not has_hidden(checkpoints):
            process.join(0.0002)
        return process.is_alive()

    return wait_for


def has_hidden(folder: Path) -> bool:
    """Tell whether a checkpoint is being written or removed."""
    try:
        return any(name.startswith(".") for name in os.listdir(folder))
    except FileNotFoundError:
        return False


def look(out: Path, tally: Tally) -> int:
    """Return the step of the newest checkpoint after a kill (-1 without one); it must read back whole."""
    checkpoints = out / "checkpoints"
    if checkpoints.exists():
        tally.within_write += has_hidden(checkpoints)
    store = Store(checkpoints, 1)
    steps = store.steps()
    tally.before_first += not steps
    if steps:
        read_checkpoint(store.path(steps[-1]))
    return steps[-1] if steps else -1


def compare(whole: Path, broken: Path) -> list[str]:
    """Return in what two ended runs differ, apart from the time they took."""
    stores = [Store(folder / "out" / "checkpoints", 1) for folder in (whole, broken)]
    if stores[0].steps() != stores[1].steps():
        return [f"checkpoints {stores[0].steps()} and {stores[1].steps()}"]
    found = [read_checkpoint(store.newest()) for store in stores]
    rows = [read_rows(folder / "out" / "metrics.jsonl") for folder in (whole, broken)]
    return [*compare_checkpoints(*found), *(["rows of metrics"] if rows[0] != rows[1] else [])]


def compare_checkpoints(one: Checkpoint, other: Checkpoint) -> list[str]:
    """Return the arrays and sections in which two checkpoints differ by a bit."""
    names = sorted({*one.arrays, *other.arrays})
    arrays = [name for name in names if not is_same(one.arrays.get(name), other.arrays.get(name))]
    sections = [name for name in one.sections if without_time(one, name) != without_time(other, name)]
    return arrays + sections


def is_same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Tell whether two arrays are the same bit for bit."""
    return one is not None and other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def without_time(checkpoint: Checkpoint, name: str) -> object:
    """Return a section without the seconds that a run took."""
    section = checkpoint.sections[name]
    return {key: value for key, value in section.items() if key != "seconds"} if isinstance(section, dict) else section


def read_rows(path: Path) -> list[dict[str, object]]:
    """Return the logged rows without their times."""
    return [{**json.loads(line), "time": 0} for line in path.read_text().splitlines()]


def make_trial(folder: Path, name: str, kills: int, seed: int) -> Tally:
    """Kill a spec's run so often, in as many runs as that takes; return what happened."""
    whole = prepare(folder / "whole", name)
    times = make_whole(whole)
    drawn, tally = random.Random(seed), Tally()
    while tally.kills < kills:
        broken = prepare(folder / f"broken-{tally.runs}", name)
        make_broken(broken, times, kills, drawn, tally)
        tally.differences += compare(whole, broken)
        shutil.rmtree(broken)
    return tally

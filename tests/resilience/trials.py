"""A trial: one spec run without a break, and again while it is hit again and again; both must end alike."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from runtime.checkpoints.format import unseal
from tests.resilience import processes
from tests.resilience.faults import Fault

HERE = Path(__file__).parent
SPECS = HERE / "specs"
NAMES = ("gan", "ema", "td3", "dropout", "judged", "seldom", "streams", "parts")
PER_RUN = 10
"""Faults in one run."""
SIGNALS = (
    ("SIGKILL",),
    ("SIGTERM",),
    ("SIGINT",),
    ("SIGINT", "SIGINT"),
    ("SIGTERM", "SIGKILL"),
    (),  # a full disk
)
EXITS = {"SIGKILL": -signal.SIGKILL, "SIGXFSZ": -signal.SIGXFSZ, "SIGTERM": 130, "SIGINT": 130, "": 1}
SIZES = (8_000, 50_000)
"""Bytes at which the system cuts a file: more than what a run prints, less than a checkpoint, a record or a picture."""


@dataclass(slots=True)
class Tally:
    """What happened in a trial."""

    kills: int = 0
    within_write: int = 0
    """Kills between two changes of the run's files, or in the middle of one."""
    before_first: int = 0
    """Kills before the first checkpoint."""
    runs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def prepare(folder: Path, name: str) -> Path:
    """Write a spec, its data and the module that it names into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SPECS / f"{name}.yaml", folder / "spec.yaml")
    shutil.copy(HERE / "streams.py", folder)
    drawn = np.random.default_rng(7)
    x = drawn.normal(size=(300, 12))
    np.savez(folder / "points.npz", x=x, y=np.abs(x[:, :4]).argmax(axis=1))
    columns = {"state": 3, "action": 1, "reward": 1, "next_state": 3}
    arrays = {key: drawn.normal(size=(256, width)) for key, width in columns.items()}
    np.savez(folder / "transitions.npz", going=(drawn.random((256, 1)) < 0.9).astype(float), **arrays)
    return folder


def command(backend: str, *more: str) -> list[str]:
    """Return the command line of a run."""
    return ["run", "spec.yaml", "--out", "out", "--plain", "--allow", "streams", "--backend", backend, *more]


def make_whole(folder: Path, backend: str) -> tuple[float, float]:
    """Run a spec without a break; return the seconds until it trains, and those until its end."""
    start, record = time.monotonic(), folder / "out" / "run.json"
    begun: list[float] = []

    def watch(process: processes.Process) -> bool:
        while process.is_alive() and not record.exists():
            process.join(0.005)
        begun.append(time.monotonic() - start)
        return False

    ended = processes.run(command(backend), folder, watch, context=processes.HERE)
    assert ended.code == 0, ended.output
    return begun[0], time.monotonic() - start


def make_broken(
    folder: Path, backend: str, times: tuple[float, float], kills: int, drawn: random.Random, tally: Tally
) -> None:
    """Run a spec while it is hit again and again, at most so often in all, until it comes to its end."""
    tally.runs += 1
    newest, hits = -1, 0
    while True:
        resumed = ["--resume"] if (folder / "out" / "run.json").exists() else []
        fault, moment = None, None
        if tally.kills < kills and hits < PER_RUN:
            fault = choose_fault(drawn)
            if fault is None:
                moment = choose_moment(times, drawn)
        before = None if fault is None else fault.arm
        ended = processes.run(command(backend, *resumed), folder, moment, before=before, context=processes.HERE)
        if ended.code == 0:
            return
        hits += 1
        tally.kills += 1
        tally.kinds[" ".join(fault.signals) or "full disk" if fault is not None else "SIGKILL"] += 1
        tally.within_write += fault is not None and fault.where != "step"
        require_told(ended, fault)
        reached = look(folder / "out", tally)
        assert reached >= newest, f"step {newest} was saved, only {reached} is left"
        newest = reached


def choose_fault(drawn: random.Random) -> Fault | None:
    """Return a fault inside of a write or around a step; None for a kill at a moment by the clock."""
    chance = drawn.random()
    if chance < 0.1:
        return None
    if chance < 0.25:
        return Fault(where="size", number=drawn.randrange(*SIZES), signals=drawn.choice(((), ("SIGXFSZ",))))
    signals = drawn.choice(SIGNALS)
    within = not signals or drawn.random() < 0.5
    gap = drawn.choice((0, 1, 4, 11)) if len(signals) > 1 else 0
    number = drawn.randrange(1, 80 if within else 30)
    return Fault(where="write" if within else "step", number=number, signals=signals, gap=gap)


def choose_moment(times: tuple[float, float], drawn: random.Random) -> processes.Moment:
    """Return a random moment: any, most of them while it trains."""
    begun, end = times
    delay = drawn.uniform(0.3 * begun, begun + 0.5 * (end - begun))

    def wait_for(process: processes.Process) -> bool:
        process.join(delay)
        return process.is_alive()

    return wait_for


def require_told(ended: processes.Ended, fault: Fault | None) -> None:
    """Refuse an end that is not the one a fault should bring, or that is told as an error of ours."""
    names = ("SIGKILL",) if fault is None else fault.signals or ("",)
    assert ended.code in {EXITS[name] for name in names}, f"{fault}: exit code {ended.code}\n{ended.output}"
    assert "Traceback" not in ended.output, ended.output
    assert "internal error" not in ended.output, ended.output
    if ended.code == 1:
        assert "error[GS234]: cannot write " in ended.output, ended.output
        reason = "file too large" if fault is not None and fault.where == "size" else "no space left on device"
        assert reason in ended.output, ended.output


def look(out: Path, tally: Tally) -> int:
    """Return the step of the newest checkpoint after a kill (-1 without one); it must read back whole."""
    store = Store(out / "checkpoints", 1)
    steps = store.steps()
    tally.before_first += not steps
    if steps:
        read_checkpoint(store.path(steps[-1]))
    return steps[-1] if steps else -1


def list_files(folder: Path) -> list[str]:
    """Return the paths of all files and folders in a folder; none where it is not there."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def compare(whole: Path, broken: Path) -> list[str]:
    """Return in what the folders of two ended runs differ, apart from the time they took and who held the lock."""
    names = list_files(whole)
    others = {*list_files(broken)} ^ {*names}
    found = [f"only one has {name}" for name in sorted(others)]
    for name in (name for name in names if name not in others and (whole / name).is_file()):
        one, other = whole / name, broken / name
        match one.name:
            case "manifest.json":
                checkpoints = read_checkpoint(one.parent), read_checkpoint(other.parent)
                found += [f"{name}: {each}" for each in compare_checkpoints(*checkpoints)]
            case "run.json":  # every run has an id of its own
                found += [name] if without_id(one) != without_id(other) else []
            case "metrics.jsonl" | "metrics.csv":
                found += [name] if without_times(one) != without_times(other) else []
            case "lock" | "state.safetensors":  # what is in the other file, is compared by name with its manifest
                continue
            case _:
                found += [name] if one.read_bytes() != other.read_bytes() else []
    return found


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


def without_id(path: Path) -> dict[str, object]:
    """Return the record of a run, whose checksum is right, without what no two runs have in common."""
    return {key: value for key, value in unseal(json.loads(path.read_text())).items() if key != "id"}


def without_times(path: Path) -> list[object]:
    """Return the lines of a file of metrics, names in their order, without the times."""
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        return [(*row[:1], *row[2:]) for row in csv.reader(lines)]
    return [list({**json.loads(line), "time": 0}.items()) for line in lines]


def make_trial(folder: Path, name: str, kills: int, seed: int, backend: str = "torch") -> Tally:
    """Hit a spec's runs so often, in as many runs as that takes; return what happened."""
    if backend == "torch":
        processes.keep_steps()
        build_steps(prepare(folder / "built", name), backend)
    whole = prepare(folder / "whole", name)
    times = make_whole(whole, backend)
    drawn, tally = random.Random(seed), Tally()
    while tally.kills < kills:
        broken = prepare(folder / f"broken-{tally.runs}", name)
        make_broken(broken, backend, times, kills, drawn, tally)
        tally.differences += compare(whole / "out", broken / "out")
        shutil.rmtree(broken)
    return tally


def build_steps(folder: Path, backend: str) -> None:
    """Build what a run needs to begin and to go on in this process, for those that are forked from it."""
    from runtime.cli import execute
    from runtime.train.run import Session
    from runtime.train.run_folder import write_record

    def stop(session: Session) -> None:
        write_record(session.folder, session.record)
        raise KeyboardInterrupt

    train, here = Session.train, Path.cwd()
    os.chdir(folder)
    Session.train = stop
    try:
        assert execute(command(backend)) == 130
        assert execute(command(backend, "--resume")) == 130
    finally:
        Session.train = train
        os.chdir(here)

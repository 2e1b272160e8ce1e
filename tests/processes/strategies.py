"""Replicas of tf.distribute beside one process: ``python -m tests.processes.strategies`` compares all cases.

Each strategy has processes of its own, as TensorFlow fixes devices and workers when it begins.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from compiler import compile_step
from graphspec import SpecError
from runtime import Step, build
from runtime.backends.tensorflow.backend import SURROUNDINGS
from tests.features.replicas import ON_BOTH
from tests.processes.cases import CASES, EXAMPLES, MORE, STEPS, TRAINED, draw, read_spec, train
from tests.suite.graphs import rewrite_graphs

ROWS, REPLICAS = 5, 2
"""The rows of a batch: three on the first replica, two on the second."""
NAMES = tuple(name for name, case in {**CASES, **EXAMPLES}.items() if "sync: true" not in case.text)
"""The cases that TensorFlow takes, and the examples."""
SINGLE = " in float32"
"""How the name of a case ends that computes in float32, and not in float64."""
FEW = "few rows"
"""What a step says of a batch with fewer rows than replicas."""
SHOWN: Mapping[str, tuple[str, ...]] = {
    "mirrored": ("everything in parts", "everything" + SINGLE, FEW),
    "workers": ("everything", "spoiled", *ON_BOTH),
}
"""What is trained in each way; of these some are rows of features."""
RARE = ("everything", "everything" + SINGLE, FEW, "spoiled")
"""What the long set alone trains: in every run the features show the workers, and a case the mirrored replicas."""
KINDS = ("alone", "mirrored", "workers")
Found = Mapping[str, np.ndarray]


def make_step(name: str, kind: str = "none") -> Step:
    """Return the step of a case on TensorFlow."""
    case, dtype = TRAINED[name.removesuffix(SINGLE)], "float32" if name.endswith(SINGLE) else "float64"
    return build(compile_step(read_spec(case, kind), backend="tensorflow"), device="cpu", dtype=dtype, allow=case.allow)


def try_case(name: str, kind: str, rank: int = 0, world: int = 1, steps: int = STEPS) -> Found:
    """Return what is found of a case, or shown of a feature, by one of some processes."""
    if name in ON_BOTH:
        return ON_BOTH[name](rank, "tensorflow")
    case = TRAINED["dropped" if name == FEW else name.removesuffix(SINGLE)]
    step = make_step("dropped" if name == FEW else name, "none" if kind == "alone" else "replicated")
    if name.endswith(SINGLE):
        batches = [draw(case, step, ROWS, number) for number in range(STEPS)]
        taken = [step({key: each.astype(np.float32) for key, each in batch.items()}) for batch in batches]
        return {f"{key} {at}": np.asarray(each) for at, outputs in enumerate(taken) for key, each in outputs.items()}
    if name != FEW:
        return dict(train(case, step, ROWS, rank, world, steps=steps, last=ROWS - 1 if steps > STEPS else 0))
    try:
        step(draw(case, step, 1, 0))
    except SpecError as error:
        return {"said": np.array(str(error)), "loss": np.asarray(step(draw(case, step, ROWS, 0))["loss"])}
    raise AssertionError("a batch of one row was taken by two replicas")


def start(folder: Path, kind: str, names: Sequence[str], steps: int = STEPS) -> list[subprocess.Popen[bytes]]:
    """Start the processes that train cases in a way, and write what they find into a folder."""
    ports: list[int] = []
    for _ in range(REPLICAS):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    started: list[subprocess.Popen[bytes]] = []
    for rank in range(REPLICAS if kind == "workers" else 1):
        told = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}
        surroundings = {**os.environ, **SURROUNDINGS, "CUDA_VISIBLE_DEVICES": "", **(told if kind == "workers" else {})}
        words = [sys.executable, "-m", "tests.processes.strategies", kind, str(folder), str(steps), *names]
        with (folder / f"{kind}.{rank}.txt").open("wb") as printed:
            started.append(subprocess.Popen(words, env=surroundings, stdout=printed, stderr=printed))
    return started


def finish(folder: Path, kinds: Mapping[str, Sequence[subprocess.Popen[bytes]]], limit: float = 600) -> None:
    """Wait some seconds for the processes of each way; raise RuntimeError with what they printed where some fail."""
    ended = {(kind, rank): each.wait(limit) for kind, started in kinds.items() for rank, each in enumerate(started)}
    printed = [(folder / f"{kind}.{rank}.txt").read_text() for (kind, rank), code in ended.items() if code]
    if printed:
        raise RuntimeError("\n".join(printed))


def work(kind: str, folder: Path, steps: int, names: Sequence[str]) -> None:
    """Be one of these processes."""
    import tensorflow as tf

    rank, world, scope = 0, 1, nullcontext
    rewrite_graphs(steps > STEPS)  # in the long set as for users
    if kind == "mirrored":  # `build` finds the devices
        halves = [tf.config.LogicalDeviceConfiguration()] * REPLICAS
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    if kind == "workers":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        rank, world, scope = strategy.cluster_resolver.task_id, REPLICAS, strategy.scope
    for name in names:
        with scope():
            found = try_case(name, kind, rank, world, steps)
        np.savez(path(folder, name, kind, rank), allow_pickle=False, **found)


def path(folder: Path, name: str, kind: str, rank: int) -> Path:
    """Return the file with what a process found; features are shown by workers."""
    return folder / (f"{name}.{rank}.npz" if name in ON_BOTH else f"{name}.{kind}.{rank}.npz")


def read(folder: Path, name: str, kind: str, rank: int = 0) -> Found:
    """Return what a process has found in a case."""
    return dict(np.load(path(folder, name, kind, rank)))


def measure(one: Found, other: Found) -> float:
    """Return the greatest difference between two processes; infinite where they have not the same values."""
    if one.keys() != other.keys():
        return np.inf
    pairs = [(np.asarray(one[key], np.float64), np.asarray(other[key], np.float64)) for key in one]
    finite = [np.isfinite(a) for a, _ in pairs]
    if any(not np.array_equal(a[~at], b[~at], equal_nan=True) for (a, b), at in zip(pairs, finite, strict=True)):
        return np.inf
    return max(float(np.abs(a[at] - b[at]).max(initial=0)) for (a, b), at in zip(pairs, finite, strict=True))


def main() -> int:
    """Compare every case on both strategies with one process. Return how many differ by more than 1e-10."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        for kind in KINDS:
            finish(folder, {kind: start(folder, kind, NAMES, MORE)}, limit=3600)
        differing, most = 0, dict.fromkeys(KINDS[1:], 0.0)
        for name in NAMES:
            alone = partial(measure, read(folder, name, "alone"))
            mirrored = alone(read(folder, name, "mirrored"))
            workers = max(alone(read(folder, name, "workers", rank)) for rank in range(REPLICAS))
            print(f"{name:36}  mirrored {mirrored:8.1e}  workers {workers:8.1e}")
            differing += max(mirrored, workers) > 1e-10
            most = {"mirrored": max(most["mirrored"], mirrored), "workers": max(most["workers"], workers)}
    at_most = ", ".join(f"{kind} {gap:.1e}" for kind, gap in most.items())
    print(f"{len(NAMES)} cases, {differing} of them differ by more than 1e-10; at most: {at_most}")
    return differing


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    else:
        sys.exit(main())

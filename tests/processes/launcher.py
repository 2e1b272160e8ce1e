"""Runs by several processes, forked from one that has imported PyTorch, in an environment as launchers make it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.process import BaseProcess as Process
from pathlib import Path

import numpy as np

from runtime import api
from runtime.cli import execute
from tests.resilience.processes import Ended, start

LINE = """graphspec: 1
name: line
parallel: {kind: replicated, timeout: 60}
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models:
  net: {layers: [{linear: 3}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.05}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: net, loss: error, accumulate: 3}
  slow: {ema: net, decay: 0.9}
  gap: {call: sub, inputs: [guess, y]}
  seen: {metric: mean, inputs: gap}
outputs: [error, seen]
data:
  train: {source: npz, path: line.npz, batch: 7, shuffle: true, drop_last: false}
  test: {source: npz, path: test.npz, batch: 5}
run: {steps: 14, log_every: 5, checkpoint: {every: 4 steps, keep: 9}, eval: 5 steps, best: {metric: seen, mode: min}}
"""
"""Windows of three steps, checkpoints of four, and last batches of five and of three rows."""
SOURCES = """
import os, signal, time
import numpy as np

x = np.linspace(-1, 1, 40)[:, None]
y = 3 * x - 1 + 0.1 * np.sin(20 * x)


class Numbered:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": x[index], "y": y[index]}


class Drifting(Numbered):
    read = 0

    def __getitem__(self, index):
        Drifting.read += 1
        if os.environ.get("RANK") == "1" and Drifting.read == 9:  # in the third step, of three rows as the others
            import gc, torch

            for each in gc.get_objects():
                if isinstance(each, torch.nn.Linear) and each.out_features == 1:
                    each.bias.data.add_(1e-9)
        return super().__getitem__(index)


class Stream:
    def __iter__(self):
        for begin in range(0, 40, 7):
            yield {"x": x[begin : begin + 7], "y": y[begin : begin + 7]}


class Failing(Numbered):
    read = 0

    def __init__(self, how):
        self.how = how

    def __getitem__(self, index):
        Failing.read += 1
        if os.environ.get("RANK") == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            if Failing.read == 18:  # its parts have 3, 3, 3, 3, 3 and 2 rows in an epoch
                if self.how == "raises":
                    raise OSError("no such picture")
                if self.how == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
        return super().__getitem__(index)
"""


def write(folder: Path, text: str = LINE) -> None:
    """Write a spec, its data, and the sources that it may name."""
    x = np.linspace(-1, 1, 40)[:, None]
    np.savez(folder / "line.npz", x=x, y=3 * x - 1 + 0.1 * np.sin(20 * x))
    np.savez(folder / "test.npz", x=x[::5] + 0.01, y=3 * x[::5])
    (folder / "sources.py").write_text(SOURCES)
    (folder / "line.yaml").write_text(text)


def prepare(given: Mapping[str, str]) -> None:
    """Set what a launcher says in the environment, and let runs compute in float64."""
    os.environ.update(given)
    api.build = partial(api.build, dtype="float64")


def start_all(folder: Path, *commands: Sequence[str], given: Mapping[str, str] | None = None) -> list[Process]:
    """Start ``stepgraph run line.yaml`` in a process for each of some lists of options, as one run."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    started: list[Process] = []
    for rank, options in enumerate(commands):
        told = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(commands))}
        told |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, **(given or {})}
        words = ["run", "line.yaml", "--out", "out", *options]
        started.append(start(words, folder, folder / f"{rank}.txt", partial(prepare, told)))
    return started


def run_all(
    folder: Path,
    *commands: Sequence[str],
    meanwhile: Callable[[list[Process]], None] | None = None,
) -> list[Ended]:
    """Run these processes to their end."""
    started = start_all(folder, *commands)
    if meanwhile is not None:
        meanwhile(started)
    ended: list[Ended] = []
    for rank, process in enumerate(started):
        process.join(100)
        assert process.exitcode is not None, f"rank {rank} does not end"
        ended.append(Ended(code=process.exitcode, output=(folder / f"{rank}.txt").read_text()))
    return ended


def launch_twice(folder: Path) -> None:
    """Run ``line.yaml`` by two processes of the launcher behind torchrun, which starts both again where one fails."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="again",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=1,
        start_method="fork",
    )
    elastic_launch(config, work)(str(folder))


def work(folder: str) -> None:
    """Be one of these processes."""
    os.chdir(folder)
    opened = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(opened, stream)
    prepare({})
    code = execute(["run", "line.yaml", "--out", "out", "--allow", "sources"])
    sys.stdout.flush()
    if code:
        os._exit(code)

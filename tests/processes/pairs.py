"""What two processes do in single tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, build
from tests.processes.cases import CASES, draw, make_step
from tests.processes.group import fork

SPEC = """graphspec: 1
name: line
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  error: {loss: mse, inputs: [out, x]}
  learn: {update: net, loss: error}
outputs: [error]
"""
BATCH = {"x": np.ones((2, 2), np.float32)}


def make_net(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 2))


def restore(step: Step, rank: int) -> Step:
    """Return a step that one process restores with another bias."""
    step(BATCH)
    state = step.state()
    if rank:
        state.arrays["models.net.0.bias"][:] += 1
    step.restore(state)
    return step


def begin_all(folder: Path) -> int:
    """Let two processes begin in every way, and write what they say. Return how many failed."""
    plan, other = (compile_step(load(SPEC, settings)) for settings in ([], ["ops.error.loss=l1"]))
    cases: Mapping[str, Callable[[int], Step]] = {
        "same": lambda rank: build(plan, device="cpu", models={"net": make_net(0)}),
        "seeds": lambda rank: build(plan, device="cpu", seed=rank, models={"net": make_net(0)}),
        "weights": lambda rank: build(plan, device="cpu", models={"net": make_net(rank)}),
        "plans": lambda rank: build(other if rank else plan, device="cpu", models={"net": make_net(0)}),
        "states": lambda rank: restore(build(plan, device="cpu"), rank),
    }

    def work(rank: int) -> None:
        """Take the first step of every case as one of the processes."""
        for name, make in cases.items():
            step = make(rank)
            try:
                step(BATCH)
                said = "nothing"
            except SpecError as error:
                said = str(error)
            (folder / f"{name}.{rank}").write_text(said)

    return fork(2, folder / "meeting", work)


def lose_one(folder: Path) -> int:
    """Ask for a state that the other process has a part of, and which has ended. Return how many failed."""

    def work(rank: int) -> None:
        """Be one of two processes."""
        case = CASES["accumulated"]
        step = make_step(case, "replicated")
        step({name: rows[rank::2] for name, rows in draw(case, step, 4, 1).items()})
        if rank == 1:
            os._exit(0)
        try:
            step.state()  # an open window is added up over the processes
        except SpecError as error:
            print(error, flush=True)

    return fork(2, folder / "meeting", work)

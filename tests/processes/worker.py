"""Trains the cases in real processes with gloo, and writes what each of them found: ``python -m ... FOLDER``."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from compiler import Plan
from graphspec import SpecError
from runtime import Step
from tests.processes.cases import (
    BUCKETS,
    COMPRESSED,
    RARE,
    REPLICATED,
    RESUMED,
    RUNS,
    SENT,
    SHARDED,
    STEPS,
    TOLD,
    TRAINED,
    Run,
    build_step,
    draw,
    make_step,
    train,
)
from tests.processes.group import fork
from tests.processes.mutants import BYTES, ERROR, MUTANTS, NUMBERS
from tests.processes.patterns.table import PATTERNS, train_spec
from tests.processes.random_specs import try_specs

JUDGED, FIRST = 2, 1000
"""How many random specs are compared in every test run, and their first seed."""


@contextmanager
def counting() -> Generator[dict[str, list[int]]]:
    """Count the bytes that are handed to each collective inside, by its name, as if all floats were float32.

    What is handed over while gradients are taken is counted by itself as well, as `early`.
    """
    sent: dict[str, list[int]] = {}
    plain = {name: getattr(dist, name) for name in ("all_reduce", "all_gather", "broadcast")}
    differentiate, taking = torch.autograd.grad, [False]

    def take(*given: Any, **options: Any) -> Any:
        """Take gradients."""
        taking[0] = True
        try:
            return differentiate(*given, **options)
        finally:
            taking[0] = False

    def wrap(name: str) -> Callable[..., Any]:
        """Return a collective that is counted; what it sends is its last argument."""

        def call(*given: Any, **options: Any) -> Any:
            tensor = given[-1]
            size = tensor.numel() * (4 if tensor.is_floating_point() else tensor.itemsize)
            for counted in (name, *(["early"] if taking[0] else [])):
                sent.setdefault(counted, []).append(size)
            return plain[name](*given, **options)

        return call

    for name in plain:
        setattr(dist, name, wrap(name))
    torch.autograd.grad = take
    try:
        yield sent
    finally:
        torch.autograd.grad = differentiate
        for name, function in plain.items():
            setattr(dist, name, function)


def keep_memory(step: Step) -> None:
    """Let messages of any size use memory that is kept, as large ones do."""
    step._built.engine.loaded.names["Memory"].least = 0


def train_cases(run: Run, rank: int, folder: Path, plans: Mapping[str, Plan]) -> None:
    """Train the cases of a run as one of its processes."""
    for name, plan in plans.items():
        case = TRAINED[name]
        step = build_step(case, plan)
        if run is not REPLICATED:
            keep_memory(step)
        with counting() as sent:
            found = dict(train(case, step, run.rows, rank, run.world, steps=run.steps, last=run.last))
        counted = {f"sent by {call}": np.array(sizes) for call, sizes in sent.items()}
        np.savez(run.path(folder, f"{name}.sent", rank), allow_pickle=False, **counted)
        np.savez(run.path(folder, name, rank), allow_pickle=False, **found)


def train_told(run: Run, rank: int, folder: Path) -> None:
    """Train cases as one of the processes of a run, and say in each step how many rows all of them have."""
    for name in TOLD:
        case = TRAINED[name]
        step = run.make_step(case)
        with counting() as sent:
            found = dict(train(case, step, run.rows, rank, run.world, last=7, is_told=True))
        counted = {f"sent by {call}": np.array(sizes) for call, sizes in sent.items()}
        np.savez(run.path(folder, f"{name}, told", rank), allow_pickle=False, **found, **counted)


def resume(run: Run, rank: int, folder: Path, name: str) -> None:
    """Train a case as one of the processes of a run, at a stretch, and again with a step that begins from its state."""
    case = SENT[name]
    for is_resumed in (False, True):
        step = run.make_step(case)
        for number in range(STEPS):
            if number == 2 and is_resumed:
                held, step = step.state(), run.make_step(case)
                step.restore(held)
            batch = draw(case, step, run.rows, number)
            step({name: np.array_split(each, run.world)[rank] for name, each in batch.items()})
        path = run.path(folder, f"{name}, {'resumed' if is_resumed else 'whole'}", rank)
        np.savez(path, allow_pickle=False, **step.state().arrays)


def try_mutants(run: Run, rank: int, folder: Path) -> None:
    """Train with compilers or support code that are wrong, as one of the processes of a run."""
    for mutant in MUTANTS:
        if mutant.run is not run or mutant.killer not in (NUMBERS, BYTES, ERROR):
            continue
        case, found = TRAINED[mutant.case], dict[str, np.ndarray]()
        with mutant.applied():
            step = run.make_step(case)
        if run is BUCKETS:
            keep_memory(step)
        with counting() as sent:
            try:
                found |= train(case, step, run.rows, rank, run.world)
            except SpecError as error:
                found |= {"error": np.array(str(error))}
        counted = {f"sent by {call}": np.array(sizes) for call, sizes in sent.items()}
        np.savez(run.path(folder, mutant.name, rank), allow_pickle=False, **found, **counted)


def train_patterns(run: Run, rank: int, folder: Path) -> None:
    """Train the patterns that are also written by hand, as one of the processes of a run."""
    for number, pattern in enumerate(PATTERNS):
        found = train_spec(pattern, run.kind, rank, run.world)
        np.savez(run.path(folder, f"pattern {number}", rank), allow_pickle=False, **found)


def judge_random_specs(rank: int, folder: Path) -> None:
    """Compare some random specs with the oracle, as one of two processes."""
    outcomes = dict(try_specs(JUDGED, FIRST))
    (folder / f"judged.{rank}.json").write_text(json.dumps(outcomes), encoding="utf-8")


def prepare() -> None:
    """Import what a first step imports, for all processes that are forked from this one."""
    case = TRAINED["sent"]
    step = make_step(case)
    step(draw(case, step, 2, 0))
    import_module("torch.distributed.fsdp")


def main(folder: Path, runs: Sequence[Run]) -> int:
    """Start the processes of every run. Return how many failed."""
    prepare()
    failed = 0
    for run in runs:
        plans = {name: run.compile(TRAINED[name]) for name in run.names}

        def work(rank: int, run: Run = run, plans: Mapping[str, Plan] = plans) -> None:
            """Take part in a run; two replicas do all else."""
            if run in COMPRESSED:
                warnings.simplefilter("error")
            train_cases(run, rank, folder, plans)
            if run in (REPLICATED, SHARDED, *COMPRESSED):
                for name in RESUMED:
                    resume(run, rank, folder, name)
            if run in (REPLICATED, SHARDED):
                train_patterns(run, rank, folder)
                train_told(run, rank, folder)
            try_mutants(run, rank, folder)
            if run is REPLICATED:
                judge_random_specs(rank, folder)

        failed += fork(run.world, folder / f"meet.{run.title}", work)
    return failed


def start_some(folder: Path) -> int:
    """Start the processes of what every test run trains. Return how many failed."""
    return main(folder, [run for run in RUNS if run not in RARE])


def start_all(folder: Path) -> int:
    """Start the processes of the long set too. Return how many failed."""
    return main(folder, RUNS)


if __name__ == "__main__":
    sys.exit(start_all(Path(sys.argv[1])))

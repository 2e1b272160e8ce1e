"""Random specs on two processes, against the oracle: ``python -m tests.processes.random_specs COUNT [--from SEED]``."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch.distributed as dist

from compiler import Plan, compile_step
from compiler.ir.instructions import Forward
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.oracle.optimizers import DegenerateError
from tests.processes.group import fork
from tests.properties.agreement import batches, codes_of, find_turns, judge, modes_of, observe, run_oracle
from tests.properties.execution import Execution
from tests.properties.plans import PACE
from tests.properties.specs import random_spec

WORLD = 2
PARALLEL = {"kind": "replicated"}
COUPLED = "coupled: the parts of the batch do not combine, or a layer has other numbers in each"
"""Why there is nothing to compare: a process has other numbers, and is meant to (W-COUPLED, dropout)."""


def is_coupled(plan: Plan, *, is_added: bool = False) -> bool:
    """Return whether processes are meant to have other numbers than one; ``is_added``: than its micro-batches."""
    instructions = (each for mode in plan.program.modes for one in mode.functions for each in one.instructions)
    forwards = [each for each in instructions if isinstance(each, Forward) and each.is_replica]
    # what the forward of one part writes, such as the vectors of a spectral norm, the next part reads
    is_special = any(each.drawing or ((is_added or each.micro_batch) and each.writes) for each in forwards)
    return is_special or any(each.code == "W-COUPLED" for each in plan.warnings)


def decouple(value: Any) -> Any:
    """Return a document whose layers neither normalize over the batch nor draw."""
    match value:
        case "batch_norm" | "dropout":
            return "identity"
        case {"batch_norm": _} | {"dropout": _} if len(value) == 1:
            return "identity"
        case dict():
            return {key: decouple(each) for key, each in value.items()}
        case list():
            return [decouple(each) for each in value]
        case _:
            return value


def add_up(document: Mapping[str, Any], random: Random) -> Mapping[str, Any]:
    """Return a document some of whose updates add up what each process has on its own rows."""
    ops = {**document["ops"]}
    for name, op in document["ops"].items():
        if "update" in op and random.random() < 0.5:
            ops[name] = {**op, "reduce": "sum"}
    return {**document, "ops": ops}


def try_spec(document: Mapping[str, Any]) -> str:
    """Return what comes of a spec on this process: ``agreed``, why there is nothing to compare, or what differs.

    To the oracle processes that add up their gradients are micro-batches, each of which takes those of its own rows.
    """
    shared = {**document, "parallel": PARALLEL}
    is_added = any("reduce" in op for op in document["ops"].values())
    try:
        plan = compile_step(load(json.dumps(shared) + "\n"), pace=PACE)
    except SpecError as error:
        return f"rejected: {codes_of(error)}"
    if is_coupled(plan, is_added=is_added):
        return COUPLED
    try:
        spec = load(json.dumps({**shared, "micro_batches": WORLD} if is_added else document) + "\n")
    except SpecError as error:
        return f"no micro-batches: {codes_of(error)}"
    execution, modes, rank = Execution(plan), modes_of(plan), dist.get_rank()
    found = []
    for turn, batch in zip(find_turns(spec, modes), batches(spec), strict=False):
        own = {name: np.array_split(value, WORLD)[rank] for name, value in batch.items()}
        try:
            found.append((execution.step(own, *turn), observe(execution)))
        except ValueError as error:  # on both processes: how a user's loss counts is known when it has run
            return f"refused: {error}"
    told = spec, execution.shapes(), modes
    try:
        mismatch = judge(told, found, run_oracle(*told))
    except DegenerateError as error:
        return f"degenerate: {error}"
    return f"mismatch: {mismatch}" if mismatch else "agreed"


def draw(seed: int) -> Mapping[str, Any]:
    """Return a random document; of those without micro-batches every third adds up gradients of processes."""
    document = decouple(random_spec(Random(seed)))
    return add_up(document, Random(seed)) if seed % 3 == 0 and document.get("micro_batches", 1) == 1 else document


def try_specs(count: int, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield what comes of random specs on this process, by seed, until so many have been compared."""
    for seed in itertools.count(start):
        try:
            outcome = try_spec(draw(seed))
        except Exception as error:
            yield seed, f"mismatch: raised {type(error).__name__}: {error}"
            raise  # the other process waits in vain, and this one goes no further
        yield seed, outcome
        count -= outcome.startswith(("agreed", "mismatch"))
        if count <= 0:
            return


def main() -> int:
    """Try specs on both processes, and print what came of them; return 1 where some differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes.random_specs", description=__doc__)
    parser.add_argument("count", type=int, help="how many specs are compared")
    parser.add_argument("--from", type=int, default=0, dest="start", help="the first seed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:

        def work(rank: int) -> None:
            """Try all specs, and write what comes of them."""
            with Path(folder, f"{rank}.txt").open("w", encoding="utf-8") as file:
                for seed, outcome in try_specs(given.count, given.start):
                    print(seed, json.dumps(outcome), file=file, flush=True)

        failed = fork(WORLD, Path(folder, "meet"), work)
        texts = [Path(folder, f"{rank}.txt").read_text(encoding="utf-8") for rank in range(WORLD)]
    outcomes: dict[str, list[str]] = {}
    for seed, _, outcome in (line.partition(" ") for text in texts for line in text.splitlines()):
        outcomes.setdefault(seed, []).append(json.loads(outcome))
    counts: Counter[str] = Counter()
    for seed, found in outcomes.items():
        differs = len(found) < WORLD or len({*found}) > 1 or found[0].startswith("mismatch")
        counts["mismatch" if differs else found[0].partition(":")[0]] += 1
        if differs:
            print(f"seed {seed}: {'; '.join(found)}")
    print(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    return int(failed > 0 or counts["mismatch"] > 0)


if __name__ == "__main__":
    sys.exit(main())

"""The steps by stepgraph: emitted, built, captured, and in the loop of ``stepgraph run``, on both frameworks."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.peers.pace import Pace, find_folder

NEVER = 10**9


def emitted(workload: Any, pace: Pace) -> None:
    """Take steps of the file that `stepgraph emit` writes."""
    from benchmarks.run import make_emitted

    step = make_emitted(workload)
    for batch in pace:
        pace.keep(step(batch))


def built(workload: Any, pace: Pace, *, jit: bool = False) -> None:
    """Take steps of what `build` gives, which checks every batch."""
    from compiler import compile_step
    from graphspec import load
    from runtime import build

    plan = compile_step(load(workload.spec))
    step = build(plan, device="cpu", models=workload.nets, jit="step" if jit else None)
    for batch in pace:
        pace.keep(step(batch))


def captured(workload: Any, pace: Pace) -> None:
    """Take steps that are captured as one graph."""
    built(workload, pace, jit=True)


def find_weights() -> list[str]:
    """Return the overrides by which models of a spec begin with the weights that all variants have."""
    return [f"models.{path.stem}.weights={path}" for path in sorted(find_folder().glob("*.safetensors"))]


class Paced:
    """The data of a run; its next batch is there when the pace says so."""

    def __init__(self, feed: Any, pace: Pace) -> None:
        self.feed, self.paced = feed, iter(pace)

    def next(self) -> Any:
        """Return the next batch, None at the end of an epoch."""
        batch = self.feed.next()
        if batch is not None:
            next(self.paced)
        return batch

    def __getattr__(self, name: str) -> Any:
        """Be the data in all else."""
        return getattr(self.feed, name)


class Kept:
    """A step whose first losses are kept."""

    def __init__(self, step: Any, pace: Pace) -> None:
        self.step, self.keep = step, pace.keep

    def __call__(self, batch: Any, **options: Any) -> Mapping[str, Any]:
        """Take a step."""
        outputs = self.step(batch, **options)
        self.keep(outputs)
        return outputs

    def __getattr__(self, name: str) -> Any:
        """Be the step in all else."""
        return getattr(self.step, name)


def run(workload: Any, pace: Pace, backend: str = "torch") -> None:
    """Take steps as `stepgraph run` does: its own data, loop, log and folder; one row is logged, none later."""
    from graphspec import load
    from runtime.train.run import Request, prepare

    folder = find_folder()
    rows = len(pace.batches[0][next(iter(pace.batches[0]))])
    source = {"source": "npz", "path": str(folder / "data.npz"), "batch": rows, "shuffle": False}
    overrides = [f"data={json.dumps({'train': source})}", f"run={json.dumps({'steps': NEVER, 'log_every': NEVER})}"]
    overrides += find_weights()
    request = Request(
        path=workload.spec,
        spec=load(workload.spec, overrides=overrides),
        overrides=overrides,
        backend=backend,
        order="fewest",
        device="cpu",
        seed=0,
        steps=None,
        out=folder / f"run-{backend}",
        allow=(),
        resume=False,
        debug=None,
        jit_compile=False,
        stream=sys.stderr,
        moving=False,
    )
    session = prepare(request)
    replace(session, feed=Paced(session.feed, pace), step=Kept(session.step, pace)).train()


def run_tensorflow(workload: Any, pace: Pace) -> None:
    """Take steps as `stepgraph run --backend tensorflow` does."""
    run(workload, pace, "tensorflow")


def built_tensorflow(workload: Any, pace: Pace, *, xla: bool = False) -> None:
    """Take steps of what `build` gives on TensorFlow, compiled by XLA or not."""
    from compiler import compile_step
    from graphspec import load
    from runtime import build

    plan = compile_step(load(workload.spec, overrides=find_weights()), "tensorflow")
    step = build(plan, device="cpu", jit_compile=xla)
    for batch in pace:
        pace.keep(step(batch))


def built_xla(workload: Any, pace: Pace) -> None:
    """Take steps that XLA compiles."""
    built_tensorflow(workload, pace, xla=True)

"""The memory that a step holds at its peak, next to a loop by hand: ``python -m benchmarks.memory [BEFORE]``.

Every step calls twenty functions, whose results have 4 MB each: one after another, or each on the same one. The peak is
the most that PyTorch's allocator has given out at one time within a step, beyond what it had before it. With a
folder the files that an older tree emits are measured, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Row, add_json, report
from benchmarks.trees import emit_by
from benchmarks.workloads import Batch, Step
from compiler import compile_step
from graphspec import load
from runtime import emit
from runtime.bench.emitted import load_emitted

CALLS = 20
SIZE = 1024
"""Rows and columns of each result: 4 MB in float32."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the calls of a step hang together."""

    name: str
    ops: Mapping[str, object]
    by_hand: Callable[[torch.Tensor], torch.Tensor]
    """The same calls: from what the model returns to the loss."""


def chain() -> Shape:
    """Return calls each of which reads what the one before it returned."""

    def by_hand(found: torch.Tensor) -> torch.Tensor:
        for _ in range(CALLS):
            found = torch.tanh(found)
        return found.mean()

    reads = ["start", *(f"call_{number}" for number in range(1, CALLS))]
    ops = {f"call_{number}": {"call": "tanh", "inputs": read} for number, read in enumerate(reads, 1)}
    return Shape(name="chain", ops={**ops, "loss": {"call": "mean", "inputs": f"call_{CALLS}"}}, by_hand=by_hand)


def fan() -> Shape:
    """Return calls that all read what the model returned; the loss is the sum of their means."""

    def by_hand(found: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tanh(found).mean() for _ in range(CALLS)]).sum()

    ops: dict[str, object] = {}
    for number in range(1, CALLS + 1):
        ops[f"call_{number}"] = {"call": "tanh", "inputs": "start"}
        ops[f"mean_{number}"] = {"call": "mean", "inputs": f"call_{number}"}
    loss = {"expr": " + ".join(f"mean_{number}" for number in range(1, CALLS + 1))}
    return Shape(name="fan", ops={**ops, "loss": loss}, by_hand=by_hand)


def losses() -> Shape:
    """Return losses of the same result, each of which has numbers of its own as large; the step trains on their sum."""

    def by_hand(found: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.nn.functional.mse_loss(found, torch.zeros_like(found)) for _ in range(CALLS)]).sum()

    names = [f"loss_{number}" for number in range(1, CALLS + 1)]
    made = {name: {"loss": "mse", "inputs": ["start", 0.0]} for name in names}
    return Shape(name="losses", ops={**made, "loss": {"expr": " + ".join(names)}}, by_hand=by_hand)


SHAPES = (chain(), fan(), losses())


def emitted(shape: Shape, tree: Path | None = None) -> Mapping[str, Step]:
    """Return the step of the file that this tree or another emits, in both modes."""
    document = {
        "graphspec": 1,
        "name": shape.name,
        "inputs": {"x": {"shape": ["batch", SIZE]}},
        "models": {"net": {"layers": [{"linear": SIZE}], "optimizer": {"name": "sgd", "lr": 0.1}}},
        "ops": {
            "start": {"forward": "net", "inputs": "x"},
            **shape.ops,
            "step": {"update": "net", "loss": "loss"},
        },
        "outputs": ["loss"],
    }
    text = json.dumps(document)
    module = load_emitted(emit(compile_step(load(text))) if tree is None else emit_by(tree, text))
    module.build()
    return {mode: lambda batch, mode=mode: module.step(batch, mode) for mode in ("train", "eval")}


def expert(shape: Shape) -> Mapping[str, Step]:
    """Return the same steps by hand."""
    net = torch.nn.Linear(SIZE, SIZE)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)

    def train(batch: Batch) -> Mapping[str, object]:
        loss = shape.by_hand(net(batch["x"]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": loss.detach()}

    @torch.no_grad()
    def evaluate(batch: Batch) -> Mapping[str, object]:
        return {"loss": shape.by_hand(net(batch["x"]))}

    return {"train": train, "eval": evaluate}


def find_peak(step: Step, batch: Batch) -> int:
    """Return the most bytes that a step has of the allocator at one time, beyond what there was before it."""
    step(batch)
    step(batch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step(batch)
    found = recorded.profiler
    assert found is not None
    events = [each for each in found.kineto_results.events() if each.name() == "[memory]"]
    held, peak = 0, 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def find_rows(tree: Path | None) -> Iterator[Row]:
    """Yield the MB of each shape in both modes: of the loop by hand, of this tree, and of an older one."""
    batch = {"x": torch.randn(SIZE, SIZE)}
    for shape in SHAPES:
        variants = {"expert": expert(shape), "emitted": emitted(shape)}
        if tree is not None:
            variants["before"] = emitted(shape, tree)
        for mode in variants["expert"]:
            peaks = {name: find_peak(steps[mode], batch) / 2**20 for name, steps in variants.items()}
            yield {"calls": shape.name, "mode": mode, **peaks}


def show(row: Row) -> str:
    """Return the line of a shape in a mode."""
    older = [row["before"]] if "before" in row else []
    figures = (row["expert"], row["emitted"], row["emitted"] / row["expert"], *older)
    return f"| {row['calls']} | {row['mode']} | {' | '.join(f'{each:.2f}' for each in figures)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", type=Path, help="an older tree")
    add_json(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    older = ("before MB",) if options.before is not None else ()
    heads = ("calls", "mode", "expert MB", "emitted MB", "of expert", *older)
    print(f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", sep="\n")
    report(find_rows(options.before), show, options.json)


if __name__ == "__main__":
    main()

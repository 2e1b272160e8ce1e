"""Two processes whose steps show the rows about replicas: ``python -m tests.features.replicas FOLDER`` with gloo.

Those of TensorFlow are workers of `tests.processes.strategies`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from runtime import Step
from tests.features.steps import build_step, set_weights, weights
from tests.processes.group import fork

WORLD = 2
LINE = """
graphspec: 1
name: line
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.01}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
SLOPE = LINE.replace("{loss: mse, inputs: [out, y]}", "{call: mean, inputs: out}").replace("lr: 0.01", "lr: 1.0")
NET = """
graphspec: 1
name: net
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 3}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.1}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, 1.0]}
  step: {update: net, loss: loss}
outputs: [loss]
"""
REPLICATED, SHARDED = "parallel={kind: replicated}", "parallel={kind: sharded}"
COMPRESSED = "parallel={kind: replicated, compress: {kind: threshold, threshold: 0.5}}"
ROWS = {"x": np.arange(1.0, 6.0)[:, None], "y": np.zeros((5, 1))}
Found = Mapping[str, np.ndarray]


def begin(text: str, *settings: str, backend: str = "torch") -> Step:
    """Return a step of one weight, which is 1."""
    step = build_step(text, backend, settings)
    set_weights(step, {"net.0.weight": [[1.0]]})
    return step


def own(batch: Found, rank: int) -> dict[str, np.ndarray]:
    """Return the rows of a process: three of five are those of the first."""
    return {name: np.array_split(value, WORLD)[rank] for name, value in batch.items()}


def train(text: str, settings: Sequence[str], take: Callable[[Found], Found], backend: str = "torch") -> Found:
    """Return what three steps leave behind, and what the last returns."""
    step = build_step(text, backend, settings)
    outputs: Mapping[str, object] = {}
    for number in range(3):
        outputs = step(take({"x": np.random.default_rng(number).normal(size=(5, 2))}))
    slots = {f"own.{name}": value for name, value in _find_slots(step).items()}
    counts = {"iterations": np.array(step.optimizers["net"].iterations), "loss": np.asarray(outputs["loss"])}
    return {**step.state().arrays, **slots, **counts}


def _find_slots(step: Step) -> Found:
    """Return the moments that this process has."""
    return {name: np.asarray(each["exp_avg"]) for name, each in step.optimizers["net"].slots.items()}


def combine(rank: int, backend: str = "torch") -> Found:
    """Return what one step makes of a weight, as the gradients are the mean over all rows or a sum of means.

    `own`: the update says that they are the sum.
    """
    found: dict[str, np.ndarray] = {}
    sums = "parallel={kind: replicated, reduce: sum}"
    for reduce, settings in {"mean": [REPLICATED], "sum": [sums], "own": [REPLICATED, "ops.step.reduce=sum"]}.items():
        step = begin(LINE, *settings, backend=backend)
        found[f"loss.{reduce}"] = np.asarray(step(own(ROWS, rank))["loss"])
        found[reduce] = weights(step)["net.0.weight"]
    return found


def judge(rank: int, backend: str = "torch") -> Found:
    """Return the weight and the loss scale after each of three steps, whose second has an infinity on one process."""
    step = begin(LINE, REPLICATED, "precision={loss_scale: dynamic}", backend=backend)
    seen: list[float] = []
    for number in range(3):
        batch = {**ROWS, "y": np.where(np.arange(5) == 4, np.inf, 0.0)[:, None]} if number == 1 else ROWS
        step(own(batch, rank))
        scale = step.state().counters["scaling"]
        assert isinstance(scale, dict)
        held = scale["loss_scale"]
        assert isinstance(held, dict)
        seen += [weights(step)["net.0.weight"].item(), float(str(held["scale"]))]
    return {"seen": np.array(seen)}


def compress(rank: int) -> Found:
    """Return the weight after each of four steps that send a half, or nothing; the run is resumed after two of them."""
    step, seen = begin(SLOPE, COMPRESSED), list[float]()
    for number in range(4):
        if number == 2:
            held, step = step.state(), begin(SLOPE, COMPRESSED)
            step.restore(held)
        step(own({"x": np.array([[0.6], [0.4]]), "y": np.zeros((2, 1))}, rank))
        seen.append(weights(step)["net.0.weight"].item())
    return {"seen": np.array(seen), "rests": step.state().arrays["rests.step.rests.0.weight"]}


def update(rank: int, backend: str = "torch") -> Found:
    """Return what three steps of replicas leave behind."""
    return train(NET, [REPLICATED], lambda batch: own(batch, rank), backend)


SHOWN: Mapping[str, Callable[[int], Found]] = {
    "combine": combine,
    "judge": judge,
    "compress": compress,
    "replicated": update,
    "sharded": lambda rank: train(NET, [SHARDED], lambda batch: own(batch, rank)),
}


ON_BOTH: Mapping[str, Callable[[int, str], Found]] = {"combine": combine, "judge": judge, "replicated": update}
"""What workers of TensorFlow show, too."""


def read(folder: Path, name: str) -> list[Found]:
    """Return what each process found."""
    return [dict(np.load(folder / f"{name}.{rank}.npz")) for rank in range(WORLD)]


def main(folder: Path) -> int:
    """Start the processes, each of which writes what it finds. Return how many failed."""

    def work(rank: int) -> None:
        """Show everything as one of the processes."""
        for name, show in SHOWN.items():
            np.savez(folder / f"{name}.{rank}.npz", allow_pickle=False, **show(rank))

    return fork(WORLD, folder / "meet", work)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

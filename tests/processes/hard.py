"""Specs of runs that are killed: what they keep between steps is all that a checkpoint may lose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

KINDS: Mapping[str, str] = {
    "replicated": "kind: replicated",
    "sharded": "kind: sharded",
    "compressed": "kind: replicated, compress: {kind: threshold, threshold: 0.02}",
}
"""How processes share a step: what `parallel` says."""
TIMEOUT = 30
"""The seconds that a process waits for the others, as the specs declare them."""
LENGTH = 24
"""The steps of a run."""
HARD = """graphspec: 1
name: line
parallel: {KIND, timeout: 30}
inputs: {x: {shape: [batch, 6]}, y: {shape: [batch, 2]}}
models:
  body:
    layers: [{linear: 10}, {batch_norm: {sync: true}}, tanh, {dropout: 0.3}]
    optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
  head: {layers: [{linear: 2}], optimizer: {name: adam, lr: 0.02}}
ops:
  noise: {random: normal, like: x, args: {std: 0.1}}
  moved: {call: add, inputs: [x, noise]}
  seen: {forward: body, inputs: moved}
  guess: {forward: head, inputs: seen}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: head, loss: error}
  shape: {update: body, loss: error, accumulate: 3}
  slow: {ema: head, decay: 0.9, use: {eval: swap}}
  gap: {call: sub, inputs: [guess, y]}
  bias: {metric: mean, inputs: gap}
outputs: [error, bias]
data:
  train: {class: "sources:Rows", batch: 9, shuffle: true, drop_last: false}
  test: {class: "sources:Rows", batch: 20}
run: {steps: 24, log_every: 1, eval: 10 steps, checkpoint: {every: 4 steps, keep: 3}}
"""
"""Windows of three steps, checkpoints of four, last batches of four rows in place of nine."""
EXACT = """graphspec: 1
name: line
parallel: {KIND, timeout: 30}
inputs: {x: {shape: [batch, 6]}, y: {shape: [batch, 2]}}
models:
  one: {layers: [{linear: 2}], weights: zeros.safetensors, optimizer: {name: sgd, lr: 0.25, momentum: 0.5}}
  two: {layers: [{linear: 2}], weights: zeros.safetensors, optimizer: {name: lion, lr: 0.125, betas: [0.5, 0.5]}}
ops:
  mask: {random: bernoulli, like: x}
  masked: {call: mul, inputs: [x, mask]}
  first: {forward: one, inputs: masked}
  error: {loss: l1, inputs: [first, y], reduction: sum}
  learn: {update: one, loss: error, accumulate: {steps: 3, reduce: sum}}
  second: {forward: two, inputs: masked}
  other: {loss: l1, inputs: [second, y], reduction: sum}
  follow: {update: two, loss: other}
  slow: {ema: one, decay: 0.5}
outputs: [error]
data:
  train: {class: "sources:Whole", batch: 7, shuffle: true, drop_last: false}
run: {steps: 24, log_every: 1, checkpoint: {every: 4 steps, keep: 3}}
"""
"""Sums that have one result in every order: all numbers are multiples of a power of two that float64 holds.

Data are whole numbers, and gradients of l1 are signs of errors times data. SGD, Lion and the average halve numbers and
add them up; Lion steps by signs. Adam would round: the same number otherwise in a shard than in the whole.
"""
SOURCES = """
import functools, os, time
import numpy as np
from runtime import api

api.build = functools.partial(api.build, dtype="float64")
PAUSE = float(os.environ.get("PAUSE", "0"))
drawn = np.random.default_rng(3)
x = drawn.normal(size=(40, 6))
y = np.tanh(x[:, :2] - x[:, 2:4])
whole_x = drawn.integers(-3, 4, size=(40, 6)).astype(float)
whole_y = drawn.integers(-9, 10, size=(40, 2)).astype(float)
sync = os.fsync


def sync_slowly(file):
    time.sleep(PAUSE)
    sync(file)


os.fsync = sync_slowly  # a checkpoint takes a while, as a larger one does


class Rows:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(PAUSE)
        return {"x": x[index], "y": y[index]}


class Whole:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(PAUSE)
        return {"x": whole_x[index], "y": whole_y[index]}
"""
"""The data; a source is a user's code, by which the command line computes in float64."""


def write(folder: Path, text: str, kind: str) -> None:
    """Write a spec whose processes share steps in a way of ``KINDS``, with its data and first weights."""
    import numpy as np
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "line.yaml").write_text(text.replace("KIND", KINDS[kind]))
    (folder / "sources.py").write_text(SOURCES)
    save_file({"0.weight": np.zeros((2, 6)), "0.bias": np.zeros(2)}, folder / "zeros.safetensors")

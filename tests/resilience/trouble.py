"""A user's own module, copied beside a spec: data and a model, and a trouble where the file `trouble.txt` wants one.

The file says `<place> <number> <what>`: at which call of a place, counted from 1 in this process, what happens.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch

TOLD = Path("trouble.txt")
COUNTS = Counter()


def meet(place):
    """Count a call of a place; return what is to be wrong with what it gives, after doing what it is to do."""
    COUNTS[place] += 1
    told = TOLD.read_text() if TOLD.exists() else ""
    where, number, *what = told.split() or ("", "0")
    if (where, int(number)) != (place, COUNTS[place]):
        return ""
    for each in what:
        DEEDS.get(each, send)(each)
    return what[0]


def send(name):
    if name.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[name])


def fail(_):
    raise OSError("the camera is gone")


def wait(_):
    TOLD.rename("waiting")
    while Path("waiting").exists():
        time.sleep(0.005)


def fill(_):
    """Fill the disk but for a few bytes, as other programs do."""
    place = Path("disk", "other")
    with place.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            while os.statvfs("disk").f_bavail * os.statvfs("disk").f_frsize >= size:
                file.write(b"x" * size)


def deny(_):
    Path("out", "checkpoints").chmod(0o555)


def deafen(_):
    """Make standard output a pipe whose reader has gone away."""
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(reader)


DEEDS = {"raise": fail, "wait": wait, "fill": fill, "deny": deny, "deafen": deafen}
WRONG = {
    "missing": lambda batch: {"x": batch["x"]},
    "shape": lambda batch: {**batch, "x": batch["x"][:, :3]},
    "dtype": lambda batch: {**batch, "x": batch["x"].astype(str)},
    "nan": lambda batch: {**batch, "x": np.where(np.arange(4) == 2, np.nan, batch["x"]).astype("float32")},
    "label": lambda batch: {**batch, "y": batch["y"] + 2},
    "rows": lambda batch: {**batch, "y": batch["y"][:2]},
    "none": lambda batch: None,
}


def draw(role):
    """Return 40 samples that a small net can learn something from."""
    drawn = np.random.default_rng(7 if role == "train" else 8)
    x = drawn.normal(size=(40, 4)).astype("float32")
    return {"x": x, "y": np.abs(x[:, :3]).argmax(axis=1)}


class Points:
    """Samples by number."""

    def __init__(self, role="train"):
        self.role = role
        self.samples = draw(role)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        meet(self.role)
        return {name: array[index] for name, array in self.samples.items()}


class Stream:
    """Batches one after another."""

    def __init__(self, role="train", batches=8):
        self.role = role
        self.batches = batches

    def __iter__(self):
        samples = draw(self.role)
        for start in range(0, 5 * self.batches, 5):
            batch = {name: array[start : start + 5] for name, array in samples.items()}
            yield WRONG.get(meet(self.role), dict)(batch)


class Net(torch.nn.Sequential):
    def __init__(self, width=8):
        meet("build")
        norm, drop = torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.2)
        super().__init__(torch.nn.Linear(4, width), norm, torch.nn.ReLU(), drop, torch.nn.Linear(width, 3))

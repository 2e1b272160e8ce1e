"""accuracy on 360 held-out digits of a linear probe that gets 50 labels, over 20 draws of the 50."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import probe
from trial import Figure, Trial

from compiler import compile_step
from graphspec import load
from runtime import Step, build, reopen


def judge(trial: Trial) -> Iterator[Figure]:
    """Probe the pixels, what the encoder makes of them before it was trained, and after."""
    trained = reopen(trial.run())
    plan = compile_step(load(trial.example / "simclr.yaml"))
    untrained = build(plan, device="cpu", seed=trial.seed)
    yield from probe.compare(lambda images: encode(trained, images), lambda images: encode(untrained, images))


def encode(step: Step, images: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return the features of images, [n, 128]."""
    return step.numpy(step({"image": images}, mode="infer")["features"])

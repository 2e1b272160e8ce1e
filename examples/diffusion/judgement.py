"""how far 2,000 drawn digits are from those of the training set (Fréchet distance of pixels)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import numpy as np
from sampling import draw, load, measure_distance, sample
from trial import Figure, Trial, command

WIDTHS = ("0.05", "0.07", "0.12")
COUNT = 2000


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare averages of three widths with the last weights, and draw digits with each."""
    steps = trial.steps or 4000
    run = trial.run("-s", f"vars.kept={max(1, steps // 40)}")
    made = [run / f"net-sigma-rel-{width}.safetensors" for width in WIDTHS]
    for width in WIDTHS:
        command("average", str(run), "--sigma-rel", width)
    command("average", str(run), "--uniform", f"step-{steps}")
    drawn = [sample(load(path), COUNT, trial.seed) for path in (*made, run / "net-uniform.safetensors")]
    draw([each[:16] for each in drawn], trial.out / "samples.png")
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        digits = (held["image"] / 8.0 - 1.0).reshape(-1, 64)
        is_test = held["is_test"]
    *averaged, last = (measure_distance(each, digits[~is_test]) for each in drawn)
    for width, distance in zip(WIDTHS, averaged, strict=True):
        yield Figure(name=f"distance with an average of width {width}", value=distance, form=".2f")
    yield Figure(name="of the last weights", value=last, form=".2f")
    yield Figure(name="of the held-out digits", value=measure_distance(digits[is_test], digits[~is_test]), form=".2f")
    yield Figure(name="how much less it is with the best width", value=1.0 - min(averaged) / last, bar=0.3)

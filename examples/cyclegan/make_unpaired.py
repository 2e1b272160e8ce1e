"""Make unpaired.npz: digits, and blurred negatives of other digits, from the bundled UCI digits."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

COUNT = 400

Images = npt.NDArray[np.float16]


def make() -> dict[str, Images]:
    """Return `digit` and `negative`, both [400, 1, 8, 8] from -1 to 1; no digit is in both sets.

    Every number is a multiple of 1 / 128, which 16 bits hold exactly.
    """
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        images = held["image"][~held["is_test"]].astype(np.float64) / 8 - 1
    digit, other = images[:COUNT], images[COUNT : 2 * COUNT]
    return {"digit": _pack(digit), "negative": _pack(-blur(other))}


def blur(images: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return [n, h, w] smoothed along both axes with the weights 1/4, 1/2, 1/4; the border pixels are repeated."""
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = (wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]) / 4
    return (rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]) / 4


def _pack(images: npt.NDArray[np.float64]) -> Images:
    return images[:, np.newaxis].astype(np.float16)


if __name__ == "__main__":
    np.savez_compressed(Path(__file__).with_name("unpaired.npz"), **make())

"""Digits drawn by the net of diffusion.yaml, in NumPy alone: `python sampling.py A.safetensors B.safetensors`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from safetensors.numpy import load_file

Array = npt.NDArray[np.float64]
DATA = 0.7
"""The standard deviation of the digits, in numbers from -1 to 1."""
STRONGEST, WEAKEST, CURVE = 6.0, 0.01, 7.0


def denoise(weights: Mapping[str, Array], noisy: Array, strength: float) -> Array:
    """Return what the net takes [n, 64] noisy digits for (Karras et al. 2022, table 1)."""
    both = np.hypot(strength, DATA)
    x = np.column_stack([noisy / both, np.full(len(noisy), np.log(strength) / 4)])
    x = _silu(_linear(weights, "0", x))
    for block in ("2", "3"):
        x = x + _linear(weights, f"{block}.2", _silu(_linear(weights, f"{block}.0", x)))
    return DATA**2 / both**2 * noisy + strength * DATA / both * _linear(weights, "5", _silu(x))


def sample(weights: Mapping[str, Array], count: int, seed: int = 0, steps: int = 24) -> Array:
    """Return so many digits [count, 64], drawn out of noise by Heun's method (Karras et al. 2022, algorithm 1)."""
    ends = STRONGEST ** (1 / CURVE), WEAKEST ** (1 / CURVE)
    strengths = [*(np.linspace(*ends, steps) ** CURVE), 0.0]
    x = np.random.default_rng(seed).normal(size=(count, 64)) * strengths[0]
    for now, then in pairwise(strengths):
        slope = (x - denoise(weights, x, now)) / now
        new = x + (then - now) * slope
        if then:
            slope = (slope + (new - denoise(weights, new, then)) / then) / 2
            new = x + (then - now) * slope
        x = new
    return x


def measure_distance(one: Array, other: Array) -> float:
    """Return the Fréchet distance of two sets [n, 64], taken as normal: of their means and of their covariances."""
    means = np.sum((one.mean(axis=0) - other.mean(axis=0)) ** 2)
    first, second = np.cov(one.T), np.cov(other.T)
    # The trace of the root of a product of covariances is the sum of the roots of its eigenvalues.
    roots = np.sqrt(np.maximum(np.linalg.eigvals(first @ second).real, 0))
    return float(means + np.trace(first) + np.trace(second) - 2 * roots.sum())


def draw(rows: list[Array], path: Path, scale: int = 6) -> None:
    """Write a picture of digits, one row for each set."""
    lines = [np.hstack([np.pad(each.reshape(8, 8), 1, constant_values=-1.0) for each in row]) for row in rows]
    grey = np.clip((np.vstack(lines) + 1) / 2 * 255, 0, 255).astype(np.uint8)
    Image.fromarray(np.kron(grey, np.ones((scale, scale), np.uint8))).save(path)


def load(path: Path) -> Mapping[str, Array]:
    """Return the weights in a file that `stepgraph average` or `stepgraph export` wrote."""
    return {name: value.astype(np.float64) for name, value in load_file(path).items()}


def _linear(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _silu(x: Array) -> Array:
    return x * (1 + np.tanh(x / 2)) / 2  # without overflow


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw digits, a row for each file of weights.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("samples.png"))
    given = parser.parse_args()
    draw([sample(load(path), 16) for path in given.files], given.out)

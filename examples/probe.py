"""A linear probe: what features of digits are worth to a linear classifier that gets few labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from trial import Figure

DRAWS = 20
OF_EACH = 5
"""Labels that a probe gets of each class."""
STRENGTH = 1.0
"""Of the penalty: of 0.001, 0.01, 0.1, 0.3, 1 and 10 the best for pixels."""

Numbers = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]
Describe = Callable[[Numbers], Numbers]
"""From images [n, 1, 8, 8] to features [n, ...]."""


def compare(trained: Describe, untrained: Describe) -> Iterator[Figure]:
    """Probe the pixels, and the features of an encoder before and after it was trained."""
    by_pixels = probe_all(lambda images: images)
    by_untrained, by_trained = probe_all(untrained), probe_all(trained)
    yield Figure(name="of pixels", value=by_pixels.mean())
    yield Figure(name="of the encoder's features before training", value=by_untrained.mean())
    yield Figure(name="of the encoder's features", value=by_trained.mean())
    yield Figure(name="their spread over the draws (standard deviation)", value=by_trained.std())
    yield Figure(name="how much more than of pixels", value=(by_trained - by_pixels).mean(), bar=0.04)
    yield Figure(name="how much more than before training", value=(by_trained - by_untrained).mean(), bar=0.04)
    yield Figure(name="draws in which it is more than of pixels", value=(by_trained > by_pixels).mean(), bar=0.8)


def probe_all(describe: Callable[[Numbers], Numbers]) -> Numbers:
    """Return the accuracy of a probe for every draw of its labels; the draws are always the same."""
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        images, label, is_test = (
            (held["image"][:, np.newaxis] / 8 - 1).astype(np.float32),
            held["label"],
            held["is_test"],
        )
    features = describe(images).reshape(len(images), -1).astype(np.float64)
    known, asked = (features[~is_test], label[~is_test]), (features[is_test], label[is_test])
    return np.array([probe(*draw(*known, seed), *asked) for seed in range(DRAWS)])


def draw(features: Numbers, label: Labels, seed: int) -> tuple[Numbers, Labels]:
    """Return the features and labels of as many digits of every class."""
    random = np.random.default_rng(seed)
    each = [random.choice(np.flatnonzero(label == digit), OF_EACH, replace=False) for digit in range(10)]
    chosen = np.concatenate(each)
    return features[chosen], label[chosen]


def probe(features: Numbers, label: Labels, asked: Numbers, answers: Labels) -> float:
    """Return the accuracy of ridge regression onto the classes: no step size, no number of steps, one solution."""
    middle = features.mean(axis=0)
    size = np.sqrt(np.square(features - middle).sum(axis=1).mean())
    known, asked = (features - middle) / size, (asked - middle) / size
    classes = np.eye(10)[label]
    weights = np.linalg.solve(known @ known.T + STRENGTH * np.eye(len(known)), classes - classes.mean(axis=0))
    return float(((asked @ known.T @ weights).argmax(axis=1) == answers).mean())

"""error of held-out digits that are drawn from 20 bits, against plain vector quantisation with as many."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from trial import Figure, Trial, read_last

CODES = 32
PASSES = 50
"""Of k-means; it has settled by then."""

Numbers = npt.NDArray[np.floating]


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare what the decoder draws with the nearest of 32 pieces in each quarter, which k-means found."""
    last = read_last(trial.run())
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        pieces, is_test = quarter(held["image"] / 8 - 1), np.repeat(held["is_test"], 4)
    codebook = find_means(pieces[~is_test], trial.seed)
    plain = np.square(pieces[is_test] - codebook[choose(pieces[is_test], codebook)]).mean()
    yield Figure(name="mean squared error of a pixel", value=last["eval/error"], form=".4f")
    yield Figure(name="of vector quantisation of the quarters", value=plain, form=".4f")
    yield Figure(name="how much of that error is gone", value=1 - last["eval/error"] / plain, bar=0.1)
    yield Figure(name="perplexity of the 32 codes", value=last["eval/perplexity"], bar=16, form=".1f")


def quarter(images: Numbers) -> Numbers:
    """Return the quarters of images [n, 8, 8], four of each one after another: [4 n, 16]."""
    return images.reshape(-1, 2, 4, 2, 4).swapaxes(2, 3).reshape(-1, 16)


def choose(pieces: Numbers, codebook: Numbers) -> npt.NDArray[np.intp]:
    """Return the index of the nearest code [codes, size] of every piece [n, size]."""
    return (np.square(codebook).sum(axis=1) - 2 * pieces @ codebook.T).argmin(axis=1)


def find_means(pieces: Numbers, seed: int) -> Numbers:
    """Return a codebook [32, size] by k-means (Lloyd 1982), begun at some of the pieces."""
    codebook = np.random.default_rng(seed).choice(pieces, CODES, replace=False)
    for _ in range(PASSES):
        chosen = choose(pieces, codebook)
        used = np.unique(chosen)
        codebook[used] = [pieces[chosen == code].mean(axis=0) for code in used]
    return codebook

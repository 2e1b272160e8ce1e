"""Pairs for sparse-embeddings.yaml: words of a text that stand near each other, and words that were drawn instead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

TEXT = Path(__file__).parent / "text.txt"
WORD = re.compile("[a-z]+")
STOP = frozenset(
    WORD.findall(
        "a and before behind between by came does had it knows lay left near no of old saw so stood tells the to too "
        "were when with without"
    )
)
"""Words that stand near all others."""


def read_sentences() -> list[list[str]]:
    """Return the words of every sentence, those that say nothing left out."""
    lines = TEXT.read_text(encoding="utf-8").lower().splitlines()
    return [[word for word in WORD.findall(line) if word not in STOP] for line in lines]


def pairs(
    *, held_out: bool, window: int = 4, repeats: int = 1, negatives: int = 5, seed: int = 0
) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return a word, one that stands at most ``window`` words from it, and ``negatives`` that were drawn, per row.

    Every fifth sentence is held out. Drawn is by frequency to the power of 3/4 (Mikolov et al. 2013), anew in each of
    the ``repeats``. Words are numbered by how often they stand in the whole text.
    """
    sentences, random = read_sentences(), np.random.default_rng(seed)
    counts = Counter(word for sentence in sentences for word in sentence)
    ids = {word: at for at, (word, _) in enumerate(counts.most_common())}
    chosen = [each for at, each in enumerate(sentences) if (at % 5 == 4) == held_out]
    near = [
        (ids[word], ids[other])
        for sentence in chosen
        for at, word in enumerate(sentence)
        for other in (*sentence[max(0, at - window) : at], *sentence[at + 1 : at + 1 + window])
    ]
    found = np.concatenate([random.permutation(np.array(near, np.int64)) for _ in range(repeats)])
    weights = np.array([count for _, count in counts.most_common()], np.float64) ** 0.75
    drawn = random.choice(len(ids), size=(len(found), negatives), p=weights / weights.sum())
    return {"word": found[:, 0], "near": found[:, 1], "drawn": drawn.astype(np.int64)}

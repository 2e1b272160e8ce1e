"""sparse-embeddings: ten steps in float64 against the gradient of skip-gram by hand, and Adam on rows that have one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import build
from tests.conformance.scenario import BACKENDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "sparse-embeddings" / "sparse-embeddings.yaml"
WORDS, DRAWN, ROWS = 96, 5, 12


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def find_slopes(words: np.ndarray, contexts: np.ndarray, batch: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of both tables: -log s(v.c) in the mean over pairs, -log s(-v.d) summed over drawn words."""
    v, c, d = words[batch["word"]], contexts[batch["near"]], contexts[batch["drawn"]]
    pull = (sigmoid((v * c).sum(1)) - 1) / ROWS
    push = sigmoid(np.einsum("bi,bki->bk", v, d)) / ROWS
    by_word, by_context = np.zeros_like(words), np.zeros_like(contexts)
    np.add.at(by_word, batch["word"], pull[:, None] * c + np.einsum("bk,bki->bi", push, d))
    np.add.at(by_context, batch["near"], pull[:, None] * v)
    np.add.at(by_context, batch["drawn"], push[:, :, None] * v[:, None])
    return by_word, by_context


class LazyAdam:
    """Adam (Kingma and Ba 2014) on some rows of a table, with the count of all updates."""

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.mean, self.square, self.count = table.copy(), np.zeros_like(table), np.zeros_like(table), 0

    def step(self, slope: np.ndarray, rows: np.ndarray) -> None:
        self.count += 1
        self.mean[rows] = 0.9 * self.mean[rows] + 0.1 * slope[rows]
        self.square[rows] = 0.999 * self.square[rows] + 0.001 * slope[rows] ** 2
        mean, square = self.mean[rows] / (1 - 0.9**self.count), self.square[rows] / (1 - 0.999**self.count)
        self.table[rows] -= 0.01 * mean / (np.sqrt(square) + 1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ten_steps_are_those_by_hand_and_leave_other_rows_alone(backend: str) -> None:
    step = build(compile_step(load(EXAMPLE), backend), device="cpu", dtype="float64")
    read = {name: f"models.{name}.0.weight" for name in ("words", "contexts")}
    words, contexts = (LazyAdam(step.state().arrays[name]) for name in read.values())
    random = np.random.default_rng(3)
    for _ in range(10):
        batch = {name: random.integers(0, WORDS, ROWS) for name in ("word", "near")}
        batch["word"][1] = batch["word"][0]  # a row twice
        batch["drawn"] = random.integers(0, WORDS, (ROWS, DRAWN))
        by_word, by_context = find_slopes(words.table, contexts.table, batch)
        words.step(by_word, np.unique(batch["word"]))
        contexts.step(by_context, np.unique(np.concatenate([batch["near"], batch["drawn"].ravel()])))
        step(batch)
        for optimizer, name in ((words, "words"), (contexts, "contexts")):
            assert np.allclose(step.state().arrays[read[name]], optimizer.table, rtol=1e-10, atol=1e-12)

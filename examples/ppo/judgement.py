"""moves for which the pole stays up in 100 new games, the likelier action each time; a game is cut off at 500."""

from __future__ import annotations

from collections.abc import Iterator

import poles
from trial import Figure, Trial

from runtime import reopen

SOLVED = 475
"""The mean from which Gym counts CartPole-v1 as solved; it was the bar before anything was trained."""


def judge(trial: Trial) -> Iterator[Figure]:
    """Watch the learnt policy play."""
    step = reopen(trial.run("-s", f"vars.seed={trial.seed}", "--allow", "poles"))
    lengths = poles.watch(step, games=100, seed=1_000_000 + trial.seed)
    yield Figure(name="mean", value=lengths.mean(), bar=SOLVED, form=".1f")
    yield Figure(name="shortest", value=lengths.min(), form=".0f")

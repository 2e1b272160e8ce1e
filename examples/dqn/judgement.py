"""steps for which the pole stays up in 20 new games, without random actions; a game is cut off at 500."""

from __future__ import annotations

from collections.abc import Iterator

import cartpole
from trial import Figure, Trial

from runtime import reopen


def judge(trial: Trial) -> Iterator[Figure]:
    """Watch the learnt policy play."""
    step = reopen(trial.run("-s", f"vars.seed={trial.seed}", "--allow", "cartpole"))
    lengths = cartpole.watch(step, games=20, seed=1_000_000 + trial.seed)
    yield Figure(name="mean", value=lengths.mean(), bar=150, form=".1f")
    yield Figure(name="shortest", value=lengths.min(), form=".0f")

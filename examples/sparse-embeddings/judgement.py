"""pairs of held-out sentences whose word is nearer than one that was drawn, by rows of the tables."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare lazy rows with dense gradients, under which Adam moves every row in every step."""
    given = ("-s", f"vars.seed={trial.seed}", "--allow", "pairs")
    lazy = read_last(trial.run(*given))
    dense = read_last(trial.run(*given, "-s", "vars.rows=false", "-s", "vars.how=dense", name="dense"))
    yield Figure(name="held-out pairs that are ranked right", value=lazy["eval/nearer"], bar=0.8)
    yield Figure(name="held-out pairs that are ranked right, dense", value=dense["eval/nearer"])

"""cross-entropy of 360 held-out digits."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare sharpness-aware minimization with the same optimizer that steps where it is."""
    aware = read_last(trial.run())
    plain = read_last(trial.run("-s", "vars.rho=0.0", name="plain"))
    yield Figure(name="accuracy", value=aware["eval/accuracy"], bar=0.97)
    yield Figure(name="of plain SGD", value=plain["eval/accuracy"])
    gone = 1.0 - aware["eval/held_out_loss"] / plain["eval/held_out_loss"]
    yield Figure(name="how much of plain SGD's loss is gone", value=gone, bar=0.05)

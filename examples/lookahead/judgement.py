"""cross-entropy of 360 held-out digits."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare slow weights that are written back with the same optimizer alone."""
    ahead = read_last(trial.run())
    alone = read_last(trial.run("-s", "ops.slow.use={eval: separate}", name="alone"))
    yield Figure(name="accuracy", value=ahead["eval/accuracy"], bar=0.96)
    yield Figure(name="of SGD alone", value=alone["eval/accuracy"])
    gone = 1.0 - ahead["eval/held_out_loss"] / alone["eval/held_out_loss"]
    yield Figure(name="how much of SGD's loss is gone", value=gone, bar=0.3)

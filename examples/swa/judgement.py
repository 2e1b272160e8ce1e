"""cross-entropy of 360 held-out digits."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare the mean of the weights with the last of them, and with the mean under the last one's statistics."""
    mean = read_last(trial.run())
    last = read_last(trial.run("-s", "ops.average.use={eval: separate}", *COPIED, name="last"))
    stale = read_last(trial.run("-s", "ops.average.use={eval: swap}", *COPIED, name="stale"))
    yield Figure(name="accuracy", value=mean["eval/accuracy"], bar=0.97)
    yield Figure(name="of the last weights", value=last["eval/accuracy"])
    yield Figure(name="of the mean with the last statistics", value=stale["eval/accuracy"])
    gone = 1.0 - mean["eval/held_out_loss"] / last["eval/held_out_loss"]
    yield Figure(name="how much of the last weights' loss is gone", value=gone, bar=0.05)


COPIED = ("-s", "ops.average.buffers=copy")
"""What an average without statistics of its own does with buffers."""

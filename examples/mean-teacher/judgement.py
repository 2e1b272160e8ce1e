"""accuracy on 360 held-out digits, after 50 labels."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare the teacher with what the same net learns of the 50 labels, without the digits that have none."""
    words = ("-s", f"vars.seed={trial.seed}", "--allow", "partly")
    last = read_last(trial.run(*words))
    without = read_last(trial.run(*words, "-s", "vars.trust=0", name="labels-only"))
    teacher, alone = last["eval/teacher_accuracy"], without["eval/student_accuracy"]
    yield Figure(name="teacher", value=teacher, bar=0.90)
    yield Figure(name="student", value=last["eval/student_accuracy"])
    yield Figure(name="the same net, of the 50 labels alone", value=alone)
    yield Figure(name="its running average", value=without["eval/teacher_accuracy"])
    yield Figure(name="what teacher and unlabelled digits bring", value=teacher - alone, bar=0.02)

"""accuracy on 360 held-out digits."""

from __future__ import annotations

from collections.abc import Iterator

from trial import Figure, Trial, read_last


def judge(trial: Trial) -> Iterator[Figure]:
    """Compare the student with its twin, which had the labels of the same 50 digits and no teacher."""
    last = read_last(trial.run("-s", f"vars.seed={trial.seed}", "--allow", "lessons"))
    student, alone = last["eval/student_accuracy"], last["eval/alone_accuracy"]
    yield Figure(name="teacher, of 1,437 labels", value=last["eval/teacher_accuracy"])
    yield Figure(name="student, of 50 digits and the teacher's answers", value=student, bar=0.95)
    yield Figure(name="the same net, of 50 digits and their labels", value=alone)
    yield Figure(name="what the teacher brings", value=student - alone, bar=0.02)

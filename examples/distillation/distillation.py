"""Knowledge distillation, declared in Python: the spec of distillation.yaml, which running this file prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cross_entropy, kl_div, metrics

LESSON = 600  # the teacher's steps; then the student and its twin learn
TEMPERATURE = 4.0  # above 1: how wrong each wrong class is counts for more


def declare(seed: int = 0) -> GraphSpec:
    g = Graph("distillation", seed=seed)
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    few_image = g.input("few_image", ["batch", 1, 8, 8])  # some of the 50, again and again
    few_label = g.input("few_label", ["batch"], "int64")
    wide = [{"linear": 256}, "relu", {"dropout": 0.3}]
    layers = ["flatten", {"dropout": 0.1}, *wide, *wide, {"linear": 10}]
    teacher = g.model("teacher", layers=layers, optimizer=adam(1e-3))
    student = g.model("student", layers=["flatten", {"linear": 32}, "relu", {"linear": 10}], optimizer=adam(3e-3))
    alone = g.model("alone", like=student, optimizer=adam(3e-3))  # the same weights to begin with

    lesson = teacher(image)
    teacher_loss = cross_entropy(lesson, label)
    g.update(teacher, loss=teacher_loss, until=LESSON, name="step_teacher")

    # The student learns what the teacher says about few digits with noise: a teacher can be asked about any image.
    noise = g.normal(like=few_image, std=0.5)
    noisy = few_image + noise
    told = teacher(noisy, train=False, stop=True)  # without dropout, and a constant for every gradient
    answer = student(noisy)
    # Temperature squared gives the gradients the size they have at temperature 1.
    student_loss = kl_div(answer, told, temperature=TEMPERATURE, weight=TEMPERATURE**2)
    g.update(student, loss=student_loss, start=LESSON + 1, name="step_student")

    # Its twin learns their labels.
    guess = alone(noisy)
    alone_loss = cross_entropy(guess, few_label)
    g.update(alone, loss=alone_loss, start=LESSON + 1, name="step_alone")

    by_student, by_alone = student(image, mode="eval"), alone(image, mode="eval")
    metrics.accuracy(lesson, label, mode="eval", name="teacher_accuracy")
    metrics.accuracy(by_student, label, mode="eval", name="student_accuracy")
    metrics.accuracy(by_alone, label, mode="eval", name="alone_accuracy")
    few = {"few_image": "image", "few_label": "label"}  # eval reads neither of these
    return g.build(
        data={
            "train": {"class": "lessons:lessons", "args": {"count": 50, "seed": seed}, "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360, "columns": few},
        },
        run={"steps": 2600, "log_every": 200, "eval": {"every": "200 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

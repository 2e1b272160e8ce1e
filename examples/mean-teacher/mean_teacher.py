"""Mean teacher, declared in Python: the spec of mean-teacher.yaml. `python mean_teacher.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cross_entropy, metrics, mse, softmax

NOISE = 0.3
SHIFT = {"torch": "partly:shift", "tensorflow": "partly:shift_tf"}


def declare(trust: float = 30.0, seed: int = 0) -> GraphSpec:
    """Return the spec; trust is how much it counts to agree with the teacher, 0 trains on the 50 labels alone."""
    g = Graph("mean-teacher", seed=seed)
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")  # the 50, again and again
    unlabelled = g.input("unlabelled", ["batch", 1, 8, 8])

    def conv(out):
        return [{"conv2d": {"out": out, "kernel": 3, "padding": 1}}, "relu"]

    layers = [*conv(16), {"max_pool": 2}, *conv(32), "flatten", {"dropout": 0.3}, {"linear": 10}]
    student = g.model("student", layers=layers, optimizer=adam(3e-3))
    teacher = g.model("teacher", like=student)

    def look(seen, number=""):
        """Return a view of digits: each is moved by up to a pixel along both axes, and gets noise."""
        move = g.randint(f"move{number}", ["batch", 2], low=-1, high=2)
        moved = g.call(SHIFT, seen, move, name=f"moved{number}")
        grain = g.normal(f"grain{number}", like=image, std=NOISE)
        return g.expr(moved + grain, name=f"view{number}")

    scores = student(look(image))
    label_loss = cross_entropy(scores, label, mode="train")

    saying = student(look(unlabelled, "_1"))
    teaching = teacher(look(unlabelled, "_2"), stop=True)  # nothing updates the teacher, so it has no dropout either
    said, taught = softmax(saying), softmax(teaching)
    consistency = mse(said, taught, weight=trust, mode="train")

    loss = g.expr(label_loss + consistency, mode="train")
    g.update(student, loss=loss, name="step")
    g.ema(student, into=teacher, decay=0.99, name="follow")  # an ema reads the student as its update left it

    by_student, by_teacher = student(image, mode="eval"), teacher(image, mode="eval")
    student_accuracy = metrics.accuracy(by_student, label, mode="eval")
    teacher_accuracy = metrics.accuracy(by_teacher, label, mode="eval")
    columns = {"unlabelled": "image"}  # eval does not read it
    return g.build(
        outputs=[loss, label_loss, consistency, student_accuracy, teacher_accuracy],
        data={
            "train": {"class": "partly:digits", "args": {"labels": 50, "seed": seed}, "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360, "columns": columns},
        },
        run={"steps": 1500, "log_every": 100, "eval": {"every": "100 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

"""DINO, declared in Python: the spec of dino.yaml. `python dino.py > dino-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adamw, concat, cross_entropy, lerp, mean, softmax

NOISE, CLASSES = 0.3, 32
SHARP, SOFT = 25.0, 10.0  # 1/0.04 and 1/0.1, the temperatures of the paper


def declare() -> GraphSpec:
    g = Graph("dino")
    image = g.input("image", ["batch", 1, 8, 8])
    center = g.state("center", [CLASSES], init=0.0)  # the running mean of what the teacher says
    hidden = [{"linear": 128}, "gelu", {"linear": 64}, "gelu"]
    layers = ["flatten", *hidden, {"linear": {"out": CLASSES, "bias": False}}]
    student = g.model("student", layers=layers, optimizer=adamw(1e-3))
    teacher = g.model("teacher", like=student)

    # Two views of a digit, by noise.
    grain_1, grain_2 = g.normal(like=image, std=NOISE), g.normal(like=image, std=NOISE)
    view_1, view_2 = image + grain_1, image + grain_2

    # The teacher: centered, so that no class wins by being loud, and sharpened, so that not all are alike.
    said_1, said_2 = teacher(view_1), teacher(view_2)
    goal_1, goal_2 = softmax(SHARP * (said_1 - center)), softmax(SHARP * (said_2 - center))

    # The student, each view against the teacher's other one.
    guess_1, guess_2 = student(view_1), student(view_2)
    apart_1, apart_2 = cross_entropy(SOFT * guess_1, goal_2), cross_entropy(SOFT * guess_2, goal_1)
    loss = g.expr((apart_1 + apart_2) / 2, mode="train")
    g.update(student, loss=loss, name="step")
    g.ema(student, into=teacher, decay=0.99, name="follow")

    # Each step reads the center that the step before left, and writes it once.
    middle = mean(concat(said_1, said_2, axis=0), axis=0)
    g.assign(center, lerp(center, middle, 0.1, name="next"), name="move")

    features = teacher(image, mode="infer")  # what is kept of all this
    return g.build(
        outputs=[loss, features],
        data={"train": {"source": "digits", "batch": 128, "shuffle": True}},
        run={"steps": 600, "log_every": 100},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

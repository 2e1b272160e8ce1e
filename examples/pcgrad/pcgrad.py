"""Two tasks with PCGrad, declared in Python: the spec of pcgrad.yaml. `python pcgrad.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cross_entropy, metrics, mse, transforms

WIDTH, CODE = 64, 12


def declare() -> GraphSpec:
    g = Graph("pcgrad")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    hidden = [{"linear": WIDTH}, "relu"]
    trunk = g.model("trunk", layers=["flatten", *hidden, {"linear": CODE}], optimizer=adam(1e-3))
    classifier = g.model("classifier", layers=[*hidden, {"linear": 10}], optimizer=adam(1e-3))
    layers = [*hidden, {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    painter = g.model("painter", layers=layers, optimizer=adam(1e-3))

    code = trunk(image)
    scores, painted = classifier(code), painter(code)
    class_loss = cross_entropy(scores, label)
    image_loss = mse(painted, image, weight=10.0)

    # Where the two gradients of the trunk point against each other, each loses its part along the other before they are
    # added up, so that neither task undoes what the other learns.
    by_class, by_image = g.gradient(class_loss, wrt=trunk), g.gradient(image_loss, wrt=trunk)
    agreed = transforms.pcgrad(by_class, by_image)
    g.update(trunk, gradients=agreed, name="step_trunk")
    g.update(classifier, loss=class_loss, name="step_classifier")
    g.update(painter, loss=image_loss, name="step_painter")

    metrics.accuracy(scores, label, mode="eval", name="accuracy")
    metrics.mean(image_loss, mode="eval", name="distance")
    return g.build(
        outputs=[class_loss, image_loss, painted],
        data={
            "train": {"source": "digits", "split": "train", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 2000, "log_every": 100, "eval": {"every": "500 steps"}, "images": {"value": painted}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

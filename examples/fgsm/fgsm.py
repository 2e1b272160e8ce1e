"""Adversarial training, declared in Python: the spec of fgsm.yaml. `python fgsm.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, clip, cross_entropy, metrics, sign

EPSILON, ALPHA = 0.25, 0.5  # an image goes from -1 to 1


def declare() -> GraphSpec:
    g = Graph("fgsm")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    layers = ["flatten", {"linear": 128}, "gelu", {"linear": 64}, "gelu", {"linear": 10}]
    classifier = g.model("classifier", layers=layers, optimizer=adam(1e-3))

    scores = classifier(image)
    clean_loss = cross_entropy(scores, label)
    # The worse digit is data: the weights learn from where it lies, not from how they would move it, so no second
    # derivative is taken.
    slope = g.gradient(clean_loss, wrt=image, stop=True)
    worse = clip(image + EPSILON * sign(slope), min=-1.0, max=1.0)
    worse_scores = classifier(worse)
    worse_loss = cross_entropy(worse_scores, label)
    loss = ALPHA * clean_loss + (1 - ALPHA) * worse_loss
    g.update(classifier, loss=loss, name="step")

    accuracy = metrics.accuracy(scores, label, mode="eval")
    worse_accuracy = metrics.accuracy(worse_scores, label, mode="eval")
    return g.build(
        outputs=[loss, clean_loss, worse_loss, accuracy, worse_accuracy],
        data={
            "train": {"source": "digits", "split": "train", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 2000, "log_every": 100, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

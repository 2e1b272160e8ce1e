"""A classifier with an average, declared in Python: the spec of ema-classifier.yaml, which running this file prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cross_entropy, metrics, softmax


def declare() -> GraphSpec:
    g = Graph("ema-classifier")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    wide = [{"linear": 256}, "relu", {"dropout": 0.3}]
    layers = ["flatten", {"dropout": 0.1}, *wide, *wide, {"linear": 10}]
    classifier = g.model("classifier", layers=layers, optimizer=adam(1e-3))
    averaged = g.model("averaged", like=classifier)

    scores = classifier(image, mode="train")
    loss = cross_entropy(scores, label, mode="train")
    g.update(classifier, loss=loss, name="step")
    g.ema(classifier, into=averaged, decay=0.99, name="average")
    # Training never calls the average; in eval mode it is the one that answers, without dropout.
    answers = averaged(image, mode="eval")
    probabilities = softmax(answers, mode="eval")
    accuracy = metrics.accuracy(answers, label, mode="eval")
    return g.build(
        outputs=[loss, probabilities, accuracy],
        data={
            "train": {"source": "digits", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 1500, "log_every": 100, "eval": {"data": "test"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

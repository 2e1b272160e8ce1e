"""Sharpness-aware minimization, declared in Python: the spec of sam.yaml. `python sam.py` prints it as YAML."""

from __future__ import annotations

from typing import Literal

from graphspec import Graph, GraphSpec, dump
from graphspec.library import cross_entropy, metrics, sgd, transforms


def declare(rho: float = 0.1, order: Literal[1, 2] = 1) -> GraphSpec:
    """Return the spec; with order 2 the way uphill moves with the weights, with rho 0 it is plain SGD."""
    g = Graph("sam")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    layers = ["flatten", {"linear": 128}, "relu", {"linear": 64}, "relu", {"linear": 10}]
    net = g.model("net", layers=layers, optimizer=sgd(0.05, momentum=0.9))

    scores = net(image)
    loss = cross_entropy(scores, label)
    slopes = g.gradient(loss, wrt=net)
    way = transforms.normalize(slopes)
    worst = g.adapt(net, gradients=way, lr=-rho, order=order)  # the worst weights nearby, a value: nothing is written

    worst_scores = worst(image)
    worst_loss = cross_entropy(worst_scores, label)
    g.update(net, loss=worst_loss, name="step")

    accuracy = metrics.accuracy(scores, label, mode="eval")
    held_out_loss = metrics.mean(loss, mode="eval")
    return g.build(
        outputs=[loss, worst_loss, accuracy, held_out_loss],
        data={
            "train": {"source": "digits", "split": "train", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 1500, "log_every": 100, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

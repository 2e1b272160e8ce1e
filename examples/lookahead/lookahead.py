"""Lookahead, declared in Python: the spec of lookahead.yaml. `python lookahead.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import cross_entropy, metrics, sgd


def declare() -> GraphSpec:
    g = Graph("lookahead")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    layers = ["flatten", {"linear": 64}, "relu", {"linear": 64}, "relu", {"linear": 10}]
    net = g.model("net", layers=layers, optimizer=sgd(0.2, momentum=0.9))

    scores = net(image)
    loss = cross_entropy(scores, label)
    g.update(net, loss=loss, name="step")
    # After five steps the slow weights go half of the way to where the optimizer is, and it goes on from there, with
    # the state it has. `use={"eval": "separate"}` never writes them back: plain SGD.
    g.ema(net, every=5, decay=0.5, use={"write_back": {"every": 5}}, name="slow")
    accuracy = metrics.accuracy(scores, label, mode="eval")
    held_out_loss = metrics.mean(loss, mode="eval")
    return g.build(
        outputs=[loss, accuracy, held_out_loss],
        data={
            "train": {"source": "digits", "split": "train", "batch": 32, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 1000, "log_every": 100, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

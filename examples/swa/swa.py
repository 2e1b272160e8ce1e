"""Stochastic weight averaging, declared in Python: the spec of swa.yaml. `python swa.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import cross_entropy, metrics, sgd

EPOCH, EPOCHS, FIRST = 44, 40, 16  # steps of an epoch, epochs, and the first of them whose weights go into the mean


def declare() -> GraphSpec:
    g = Graph("swa")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    hidden = [{"linear": 64}, "batch_norm", "relu"]
    optimizer = sgd(0.2, momentum=0.9, weight_decay=5e-4)  # the learning rate stays high
    net = g.model("net", layers=["flatten", *hidden, *hidden, {"linear": 10}], optimizer=optimizer)

    scores = net(image)
    loss = cross_entropy(scores, label)
    g.update(net, loss=loss, name="step")
    # BatchNorm statistics of the mean belong to none of the weights that it is made of, so they are computed anew from
    # the training data before each evaluation.
    use = {"eval": "swap", "recompute_buffers": "train"}
    g.ema(net, decay={"kind": "uniform"}, every=EPOCH, start=FIRST * EPOCH, use=use, name="average")
    accuracy = metrics.accuracy(scores, label, mode="eval")
    held_out_loss = metrics.mean(loss, mode="eval")
    return g.build(
        outputs=[loss, accuracy, held_out_loss],
        data={
            "train": {"source": "digits", "split": "train", "batch": 32, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": EPOCHS * EPOCH, "log_every": 100, "eval": {"every": f"{10 * EPOCH} steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

"""MoCo, declared in Python: the spec of moco.yaml. `python moco.py > moco-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import argmax, concat, cross_entropy, normalize, permute, sgd, sum

NOISE, SIZE, LENGTH = 0.3, 32, 512
SHARP = 5.0  # 1/0.2, the temperature of version 2


def declare() -> GraphSpec:
    g = Graph("moco")
    image = g.input("image", ["batch", 1, 8, 8])
    queue = g.state("queue", [LENGTH, SIZE], init="unit_normal")  # keys of other digits: more of them than a batch has
    layers = ["flatten", {"linear": 128}, "gelu", {"linear": 64}, "gelu", {"linear": SIZE}]
    encoder = g.model("encoder", layers=layers, optimizer=sgd(0.05, momentum=0.9, weight_decay=1e-4))
    slow_encoder = g.model("slow_encoder", like=encoder)

    grain_1, grain_2 = g.normal(like=image, std=NOISE), g.normal(like=image, std=NOISE)
    view_1, view_2 = image + grain_1, image + grain_2
    code, slow_code = encoder(view_1), slow_encoder(view_2)
    query, key = normalize(code), normalize(slow_code)

    # How alike a query is to its own key, then to those in the queue.
    own = sum(query * key, axis=1, keepdims=True)
    others = query @ permute(queue, dims=[1, 0])
    scores = SHARP * concat(own, others, axis=1)
    first = argmax(own)  # 0 for every row: the own key stands first
    loss = cross_entropy(scores, first, mode="train")
    g.update(encoder, loss=loss, name="step")
    # The paper averages before the forwards: the same keys, shifted by one step.
    g.ema(encoder, into=slow_encoder, decay=0.99, name="follow")

    # The queue is read as the step before left it, then the newest keys go in and the oldest out.
    newest = concat(key, queue, axis=0)[:LENGTH]
    g.assign(queue, newest, name="push")

    features = encoder(image, mode="infer")  # what is kept of all this
    return g.build(
        outputs=[loss, features],
        data={"train": {"source": "digits", "batch": 128, "shuffle": True}},
        run={"steps": 600, "log_every": 100},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

"""A language model with tied weights, declared in Python: the spec of tied-lm.yaml, which running this file prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adamw, cross_entropy, metrics, one_hot, permute, schedule

LETTERS, SIZE, CONTEXT, WIDTH = 28, 32, 8, 128
LR, WARMUP, DECLINE = 3e-3, 100, 1900


def declare() -> GraphSpec:
    g = Graph("tied-lm")
    before, after_it = g.input("before", ["batch", CONTEXT], "int64"), g.input("after_it", ["batch"], "int64")
    # A parameter that is read once and used twice: one model with one optimizer, which gets the sum of both gradients.
    groups = [{"weight_decay": 0}]
    table = g.model("table", parameter={"shape": [LETTERS, SIZE], "init": "uniform"}, groups=groups)
    groups = [{"weight_decay": 0, "lr_scale": 0.1}]
    places = g.model("places", parameter={"shape": [CONTEXT, SIZE], "init": "zeros"}, groups=groups)
    residual = {"residual": ["layer_norm", {"linear": WIDTH}, "gelu", {"linear": WIDTH}]}
    body = g.model(
        "body",
        layers=["flatten", {"linear": WIDTH}, residual, residual, "layer_norm", {"linear": SIZE}],
        groups=[
            {"match": "bias$", "weight_decay": 0},
            {"match": "^(2[.]0|3[.]0|4)[.]weight", "weight_decay": 0},  # the gains of the layer norms
        ],
    )

    rows, where = table(), places()
    read = one_hot(before, classes=LETTERS) @ rows  # the row of each letter
    placed = read + where
    meant = body(placed)
    scores = meant @ permute(rows, dims=[1, 0])
    loss = cross_entropy(scores, after_it)
    # AdamW with weight decay on the matrices alone, warm-up and a cosine, and all gradients clipped together.
    warmup = schedule("warmup", to=LR, over=WARMUP)
    cosine = schedule("cosine", from_=LR, to=1e-4, over=DECLINE)
    optimizer = adamw(schedule("join", parts=[warmup, cosine]), weight_decay=0.1, betas=[0.9, 0.95])
    g.update([table, places, body], loss=loss, clip={"norm": 1.0}, optimizer=optimizer, name="step")
    hits = metrics.accuracy(scores, after_it, mode="eval")
    train, test = {"context": CONTEXT, "held_out": False}, {"context": CONTEXT, "held_out": True}
    return g.build(
        outputs=[loss, hits],
        data={
            "train": {"class": "sums:windows", "args": train, "batch": 64, "shuffle": True},
            "test": {"class": "sums:windows", "args": test, "batch": 64},
        },
        run={"steps": WARMUP + DECLINE, "log_every": 100, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

"""Two tasks weighed by their uncertainty, declared in Python: the spec of uncertainty.yaml, which this prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cross_entropy, exp, mean, metrics, mse

WIDTH, NOISE = 64, 0.5


def declare() -> GraphSpec:
    g = Graph("uncertainty")
    image, label = g.input("image", ["batch", 1, 8, 8]), g.input("label", ["batch"], "int64")
    trunk = g.model("trunk", layers=["flatten", {"linear": WIDTH}, "gelu", {"linear": WIDTH}, "gelu"])
    name_head, ink_head = g.model("name_head", layers=[{"linear": 10}]), g.model("ink_head", layers=[{"linear": 8}])
    # A log variance s for each task, which learns beside the weights.
    name_variance = g.model("name_variance", parameter={"shape": [], "init": 0.0})
    ink_variance = g.model("ink_variance", parameter={"shape": [], "init": 0.0})

    ink = mean(image, axis=[1, 3])
    grain = g.normal(like=image, std=NOISE)
    seen = image + grain
    code = trunk(seen)
    names, guess = name_head(code), ink_head(code)
    name_loss, ink_loss = cross_entropy(names, label), mse(guess, ink, weight=0.5)

    # A loss L becomes exp(-s) L + s / 2, and one of squares exp(-s) L / 2 + s / 2: what is hard to tell weighs less.
    name_s, ink_s = name_variance(), ink_variance()
    name_weight, ink_weight = exp(-name_s), exp(-ink_s)
    loss = g.expr(name_weight * name_loss + ink_weight * ink_loss + (name_s + ink_s) / 2, mode="train")
    models = [trunk, name_head, ink_head, name_variance, ink_variance]
    g.update(models, loss=loss, optimizer=adam(1e-3), name="step")

    accuracy = metrics.accuracy(names, label, mode="eval")
    ink_error = metrics.mean(ink_loss, mode="eval")
    return g.build(
        outputs=[loss, name_loss, ink_loss, name_weight, ink_weight, accuracy, ink_error],
        data={
            "train": {"source": "digits", "split": "train", "batch": 64, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": 2000, "log_every": 100, "eval": {"every": "500 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

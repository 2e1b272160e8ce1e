"""MAML, declared in Python: the spec of maml.yaml. `python maml.py > maml-from-python.yaml` writes it."""

from __future__ import annotations

from typing import Literal

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, metrics, mse

LR, SHOTS = 0.02, 10


def declare(order: Literal[1, 2] = 2, seed: int = 0) -> GraphSpec:
    """Return the spec; with order 1 the inner gradients are constants (FOMAML)."""
    g = Graph("maml", seed=seed)
    x, y, new_x, new_y = (g.input(name, ["batch", 1]) for name in ("x", "y", "new_x", "new_y"))
    layers = [{"linear": 40}, "tanh", {"linear": 40}, "tanh", {"linear": 1}]
    net = g.model("net", layers=layers, optimizer=adam(2e-3))

    # Two inner steps: the weights behind each are values of the step, and the update runs back through both.
    first = net(x)
    fast = g.adapt(net, loss=mse(first, y), lr=LR, order=order)
    second = fast(x)
    faster = g.adapt(fast, loss=mse(second, y), lr=LR, order=order)

    adapted = faster(new_x)
    loss = mse(adapted, new_y)
    g.update(net, loss=loss, accumulate=8, name="step")  # a batch is one wave: 8 of them are one update

    as_it_is = net(new_x, mode="eval")
    unadapted = mse(as_it_is, new_y, mode="eval")
    unadapted_error = metrics.mean(unadapted, mode="eval")
    adapted_error = metrics.mean(loss, mode="eval")
    train, test = {"count": 8000, "shots": SHOTS, "seed": seed}, {"count": 200, "shots": SHOTS, "seed": 12345}
    return g.build(
        outputs=[loss, unadapted_error, adapted_error],
        data={
            "train": {"class": "sines:waves", "args": train, "batch": SHOTS, "shuffle": False},
            "test": {"class": "sines:waves", "args": test, "batch": SHOTS},
        },
        run={"steps": 8000, "log_every": 500, "eval": {"every": "2000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

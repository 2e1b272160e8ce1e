"""Diffusion, declared in Python: the spec of diffusion.yaml. `python diffusion.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, concat, exp, log, metrics, mse, reshape, sqrt

STEPS, KEPT = 4000, 40


def declare() -> GraphSpec:
    g = Graph("diffusion")
    image = g.input("image", ["batch", 1, 8, 8])
    residual = {"residual": [{"linear": 128}, "silu", {"linear": 128}]}
    layers = [{"linear": 128}, "silu", residual, residual, "silu", {"linear": 64}]
    net = g.model("net", layers=layers, optimizer=adam(5e-3))

    digit = reshape(image, shape=["batch", 64])
    draw = g.normal(shape=["batch", 1])
    noise = g.normal(like=digit)
    strength = exp(1.2 * draw - 0.6)
    noisy = digit + strength * noise
    # What the net gets and gives has a variance near 1 for noise of any strength (Karras et al. 2022, table 1); 0.7 is
    # that of digits.
    seen = noisy / sqrt(strength**2 + 0.49)
    how_noisy = log(strength) / 4
    given = concat(seen, how_noisy, axis=1)
    wanted = (digit * sqrt(strength**2 + 0.49) - 0.49 * noisy / sqrt(strength**2 + 0.49)) / (0.7 * strength)
    found = net(given)
    loss = mse(found, wanted)
    g.update(net, loss=loss, name="step")
    # How wide an average should be is known only when samples are seen: of these two, kept at 40 steps,
    # `stepgraph average` makes one of any width.
    g.ema(net, decay={"kind": "power", "sigma_rel": 0.10}, name="wide")
    g.ema(net, decay={"kind": "power", "sigma_rel": 0.05}, use={"eval": "swap"}, name="narrow")
    held_out_loss = metrics.mean(loss, mode="eval")
    checkpoint = {"every": f"{STEPS // KEPT} steps", "keep": 1000}
    return g.build(
        outputs=[loss, held_out_loss],
        data={
            "train": {"source": "digits", "split": "train", "batch": 128, "shuffle": True},
            "test": {"source": "digits", "split": "test", "batch": 360},
        },
        run={"steps": STEPS, "log_every": 500, "eval": {"every": "1000 steps"}, "checkpoint": checkpoint},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

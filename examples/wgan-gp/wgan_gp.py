"""WGAN-GP, declared in Python: the spec of wgan-gp.yaml. `python wgan_gp.py > wgan-gp-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, lerp, mse, norm, sum, wasserstein

LATENT, WIDTH, CRITICS = 16, 128, 5
ADAM = adam(1e-4, betas=[0.0, 0.9])


def declare() -> GraphSpec:
    g = Graph("wgan-gp")
    image = g.input("image", ["batch", 1, 8, 8])  # from -1 (paper) to 1 (ink)
    wide = [{"linear": WIDTH}, {"leaky_relu": 0.2}]
    layers = [*wide, *wide, {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    generator = g.model("generator", layers=layers, optimizer=ADAM)
    # By layer norm, not batch norm: the penalty is on every sample by itself. What a bias at the end adds to both
    # scores cancels: its gradient would be pure rounding error.
    normed = [{"linear": WIDTH}, "layer_norm", {"leaky_relu": 0.2}]
    layers = ["flatten", *wide, *normed, {"linear": {"out": 1, "bias": False}}]
    critic = g.model("critic", layers=layers, optimizer=ADAM)

    z = g.normal(shape=["batch", LATENT])
    fake = generator(z)
    on_real, on_fake = critic(image), critic(fake, after=[])
    high, low = wasserstein(on_real, sign=-1.0), wasserstein(on_fake)

    # The slope of the critic somewhere between the two is held near 1.
    share = g.uniform(shape=["batch", 1, 1, 1])
    between = lerp(fake, image, share)
    on_between = critic(between, after=[])
    total = sum(on_between)
    slope = g.gradient(total, wrt=between)
    length = norm(slope, axis=[1, 2, 3])
    penalty = mse(length, 1.0, weight=10.0, mode="train")
    critic_loss = g.expr(high + low + penalty, mode="train")
    step_critic = g.update(critic, loss=critic_loss)

    # The generator steps once for five steps of the critic, which judges as its fifth step left it.
    new_z = g.normal(shape=["batch", LATENT])
    new_fake = generator(new_z)
    judged = critic(new_fake, after=step_critic)
    # An output, so it says by itself when it is wanted; it is all of a loss, no lazy term that others outweigh.
    generator_loss = wasserstein(judged, sign=-1.0, every=CRITICS, lazy="none", mode="train")
    g.update(generator, loss=generator_loss, every=CRITICS, name="step_generator")

    samples = generator(z, mode="eval")
    return g.build(
        outputs=[critic_loss, penalty, generator_loss, samples],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 20000, "log_every": 500, "images": {"value": samples, "every": "5000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

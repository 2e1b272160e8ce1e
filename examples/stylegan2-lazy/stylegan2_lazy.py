"""The step of StyleGAN2, declared in Python: the spec of stylegan2-lazy.yaml.

`python stylegan2_lazy.py > stylegan2-from-python.yaml` writes it. The block `made` is a function here.
"""

from __future__ import annotations

from typing import Literal

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, bce_with_logits, lerp, mean, mse, norm, normalize, sum

LATENT, WIDTH, EVERY_D, EVERY_G = 16, 64, 16, 8


def lazy_adam(every: int):
    """Return Adam for a model that takes every + 1 steps in every steps of the loop."""
    share = every / (every + 1)
    return adam(0.002 * share, betas=(0.0, 0.99**share))


def declare(
    name: str = "stylegan2-lazy",
    *,
    lazy: Literal["scale", "none"] = "scale",
    weight_g: float = 2.0,
    weight_d: float = 320.0,
) -> GraphSpec:
    g = Graph(name)
    image = g.input("image", ["batch", 1, 8, 8])
    path_mean = g.state("path_mean", [])
    mapping = g.model(
        "mapping", layers=[{"linear": WIDTH}, {"leaky_relu": 0.2}, {"linear": LATENT}], optimizer=lazy_adam(EVERY_G)
    )
    hidden = [{"linear": WIDTH}, "silu", {"linear": WIDTH}, "silu"]
    synthesis = g.model(
        "synthesis", layers=[*hidden, {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}], optimizer=lazy_adam(EVERY_G)
    )
    discriminator = g.model(
        "discriminator",
        layers=["flatten", *hidden, {"linear": {"out": 1, "bias": False}}],
        optimizer=lazy_adam(EVERY_D),
    )
    slow_mapping, slow_synthesis = g.model("slow_mapping", like=mapping), g.model("slow_synthesis", like=synthesis)

    def make():
        """Return an image of latent numbers, with its style and these numbers, on the unit sphere."""
        z = g.normal(shape=["batch", LATENT])
        unit = normalize(z)
        style = mapping(unit)
        return unit, style, synthesis(style, name="image")

    # The generator, by the non-saturating logistic loss.
    with g.scope("first"):
        unit, _, made = make()
    judged = discriminator(made, after=[])
    step_g = g.update([mapping, synthesis], loss=bce_with_logits(judged, 1.0))

    # Path lengths of the generator as that left it: by styles, the gradient of images that are weighed with noise.
    with g.scope("second", after=step_g):
        _, style, second = make()
    grain = g.normal(like=image, std=0.125)  # 1 / sqrt(8 * 8)
    pull = g.gradient(sum(second * grain), wrt=style)
    length = norm(pull, axis=1)
    next_mean = lerp(path_mean, mean(length), 0.01)
    off = length - next_mean
    path = mse(off, 0.0, weight=weight_g, every=EVERY_G, lazy=lazy, start=1, mode="train")
    step_path = g.update([mapping, synthesis], loss=path, every=EVERY_G, start=1)
    g.assign(path_mean, next_mean, every=EVERY_G, start=1, name="remember")

    # The discriminator, on what the generator makes by now.
    with g.scope("third", after=step_path):
        _, _, third = make()
    on_real, on_fake = discriminator(image), discriminator(third)
    step_d = g.update(discriminator, loss=bce_with_logits(on_real, 1.0) + bce_with_logits(on_fake, 0.0))

    # Its slope at real images: gamma / 2 of the squared length, which is 64 times the mean of its squares.
    again = discriminator(image, after=step_d)
    slope = g.gradient(sum(again), wrt=image)
    r1 = mse(slope, 0.0, weight=weight_d, every=EVERY_D, lazy=lazy, start=1, mode="train")
    g.update(discriminator, loss=r1, every=EVERY_D, start=1, name="step_r1")

    g.ema(mapping, into=slow_mapping, half_life="10k samples", name="follow_mapping")
    g.ema(synthesis, into=slow_synthesis, half_life="10k samples", name="follow_synthesis")
    samples = slow_synthesis(slow_mapping(unit, mode="eval", name="slow_style"), mode="eval")
    return g.build(
        outputs=[step_g.loss, step_d.loss, path, r1, samples],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 4000, "log_every": 160, "images": {"value": samples, "every": "1000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

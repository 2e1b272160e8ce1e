"""A GAN on digits, declared in Python: the spec of gan-digits.yaml. `python gan_digits.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, bce_with_logits

LATENT, WIDTH, NOISE = 16, 256, 0.2
ADAM = adam(1e-3, betas=[0.5, 0.999])


def declare() -> GraphSpec:
    g = Graph("gan-digits")
    image = g.input("image", ["batch", 1, 8, 8])  # from -1 (paper) to 1 (ink)
    wide = [{"linear": WIDTH}, {"leaky_relu": 0.2}]
    layers = [*wide, *wide, {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    generator = g.model("generator", layers=layers, optimizer=ADAM)
    layers = ["flatten", *wide, {"dropout": 0.3}, *wide, {"dropout": 0.3}, {"linear": 1}]
    discriminator = g.model("discriminator", layers=layers, optimizer=ADAM)
    sampler = g.model("sampler", like=generator)

    z = g.normal(shape=["batch", LATENT])
    fake = generator(z)
    noise_on_real = g.normal(like=image, std=NOISE)  # instance noise: D sees no image without it
    noise_on_fake = g.normal(like=image, std=NOISE)
    noisy_real = image + noise_on_real
    noisy_fake = fake + noise_on_fake
    on_real, on_fake = discriminator(noisy_real), discriminator(noisy_fake)
    d_real = bce_with_logits(on_real, 0.9)  # 0.9 in place of 1: label smoothing
    d_fake = bce_with_logits(on_fake, 0.0)
    d_loss = g.expr(d_real + d_fake, mode="train")
    step_d = g.update(discriminator, loss=d_loss)
    judged = discriminator(noisy_fake, after=step_d)
    g_loss = bce_with_logits(judged, 1.0, mode="train")
    g.update(generator, loss=g_loss, name="step_g")
    g.ema(generator, into=sampler, decay=0.995, name="average")
    samples = sampler(z, mode="eval")
    return g.build(
        outputs=[d_loss, g_loss, samples],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 4000, "log_every": 100, "images": {"value": samples, "every": "1000 steps"}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

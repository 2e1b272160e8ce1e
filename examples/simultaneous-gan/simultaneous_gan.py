"""A GAN whose players move at once, declared in Python: the spec of simultaneous-gan.yaml, which this prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, bce_with_logits

LATENT, WIDTH = 16, 128
ADAM = adam(5e-4, betas=[0.5, 0.999])


def declare() -> GraphSpec:
    g = Graph("simultaneous-gan")
    image = g.input("image", ["batch", 1, 8, 8])
    layers = [{"linear": WIDTH}, "relu", {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    generator = g.model("generator", layers=layers, optimizer=ADAM)
    wide = [{"linear": WIDTH}, {"leaky_relu": 0.2}]
    discriminator = g.model("discriminator", layers=["flatten", *wide, *wide, {"linear": 1}], optimizer=ADAM)

    z = g.normal(shape=["batch", LATENT])
    fake = generator(z)
    # Both losses use one call of the discriminator, at the weights both had when the step began: `after=[]` says so.
    on_real, on_fake = discriminator(image), discriminator(fake, after=[])
    d_real, d_fake = bce_with_logits(on_real, 1.0), bce_with_logits(on_fake, 0.0)
    d_loss = g.expr(d_real + d_fake, mode="train")
    g.update(discriminator, loss=d_loss, name="step_d")
    g_loss = bce_with_logits(on_fake, 1.0, mode="train")
    g.update(generator, loss=g_loss, name="step_g")
    return g.build(
        outputs=[d_loss, g_loss, fake],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 2000, "log_every": 100, "images": {"value": fake}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

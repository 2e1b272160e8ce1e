"""A VAE from classes of one's own, declared in Python: the spec of custom.yaml. `python custom.py` prints it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, exp, mse

CODE = 8


def own(name):
    """Return the paths of something that zoo.py has for PyTorch, and keras_zoo.py for TensorFlow."""
    return {"torch": f"zoo:{name}", "tensorflow": f"keras_zoo:{name}"}


def declare() -> GraphSpec:
    g = Graph("custom-classes")
    image = g.input("image", ["batch", 1, 8, 8])
    # What nobody sees without importing the classes; the build finds out whether it is true.
    traits = {"buffers": False, "rng": False, "batch_coupled": False, "recomputes": False}
    options = {"args": {"size": CODE}, "traits": traits, "optimizer": adam(1e-3)}
    encoder = g.model("encoder", class_=own("Encoder"), **options)
    decoder = g.model("decoder", class_=own("Decoder"), **options)

    mean, log_variance = encoder(image, outputs=2, name="encoding")
    deviation = exp(log_variance / 2)
    noise = g.normal(like=deviation)
    code = mean + deviation * noise
    rebuilt = decoder(code)
    distance = mse(rebuilt, image, weight=64, mode="train")  # the sum over the 64 pixels
    divergence = g.loss(own("kl_to_unit_normal"), mean, log_variance, weight=0.1, mode="train")
    loss = g.expr(distance + divergence, mode="train")
    g.update([encoder, decoder], loss=loss, name="step")

    z = g.normal(shape=["batch", CODE], mode="eval")
    samples = decoder(z, mode="eval")
    return g.build(
        outputs=[loss, distance, divergence, samples],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 2000, "log_every": 100, "images": {"value": samples}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

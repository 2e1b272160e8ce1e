"""The step of autoencoder.py with the decoder's update first: the spec of autoencoder-decoder-first.yaml."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, mse


def declare() -> GraphSpec:
    g = Graph("autoencoder-decoder-first")
    image = g.input("image", ["batch", 1, 8, 8])
    layers = ["flatten", {"linear": 64}, "relu", {"linear": 8}]
    encoder = g.model("encoder", layers=layers, optimizer=adam(1e-3))
    layers = [{"linear": 64}, "relu", {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    decoder = g.model("decoder", layers=layers, optimizer=adam(1e-3))

    code = encoder(image)
    rebuilt = decoder(code)
    loss = mse(rebuilt, image)
    # The numbers are the same: the default order takes the encoder's gradient first and defers nothing. With
    # `--order listed` the decoder's update is deferred.
    g.update(decoder, loss=loss, name="step_decoder")
    g.update(encoder, loss=loss, name="step_encoder")
    return g.build(
        outputs=[loss, rebuilt],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 2000, "log_every": 100, "images": {"value": rebuilt}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

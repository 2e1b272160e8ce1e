"""An autoencoder, declared in Python: the spec of autoencoder.yaml. `python autoencoder.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, mse


def declare() -> GraphSpec:
    g = Graph("autoencoder")
    image = g.input("image", ["batch", 1, 8, 8])
    layers = ["flatten", {"linear": 64}, "relu", {"linear": 8}]
    encoder = g.model("encoder", layers=layers, optimizer=adam(1e-3))
    layers = [{"linear": 64}, "relu", {"linear": 64}, "tanh", {"reshape": [1, 8, 8]}]
    decoder = g.model("decoder", layers=layers, optimizer=adam(1e-3))

    code = encoder(image)
    rebuilt = decoder(code)
    loss = mse(rebuilt, image)
    # The encoder's gradient runs through the decoder, so the decoder must not move before it is taken; the decoder's
    # gradient does not touch the encoder. Encoder first, nothing has to wait.
    g.update(encoder, loss=loss, name="step_encoder")
    g.update(decoder, loss=loss, name="step_decoder")
    return g.build(
        outputs=[loss, rebuilt],
        data={"train": {"source": "digits", "batch": 64, "shuffle": True}},
        run={"steps": 2000, "log_every": 100, "images": {"value": rebuilt}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

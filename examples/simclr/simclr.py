"""SimCLR, declared in Python: the spec of simclr.yaml. `python simclr.py > simclr-from-python.yaml` writes it.

The blocks `view` and `project` are functions here; the names in them begin with those of their scopes.
"""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import abs, adam, cumsum, einsum, nt_xent, relu

TEMPERATURE, NOISE = 0.5, 0.3


def declare() -> GraphSpec:
    g = Graph("simclr")
    image = g.input("image", ["batch", 1, 8, 8])  # from -1 (paper) to 1 (ink)
    ones = g.state("ones", [8], init=1.0)

    def conv(out, **options):
        return [{"conv2d": {"out": out, **options}}, "relu"]

    convs = [*conv(32, kernel=3, padding=1), {"max_pool": 2}, *conv(64, kernel=3, padding=1), {"max_pool": 2}]
    encoder = g.model("encoder", layers=[*convs, *conv(128, kernel=2), "flatten"])
    projector = g.model("projector", layers=[{"linear": 128}, "relu", {"linear": 64}])

    def view(image):
        """Return a random crop of each image, resized, with random contrast and noise."""
        size = g.uniform(shape=["batch", 2, 1], low=0.7, high=1.1)  # of the crop, as a share of each side
        middle = g.uniform(shape=["batch", 2, 1], low=-1.0, high=1.0)  # how many pixels off the middle
        contrast = g.uniform(shape=["batch", 1, 1, 1], low=0.6, high=1.0)
        grain = g.normal(like=image, std=NOISE)
        pixel = cumsum(ones) - 1
        place = 3.5 + middle + size * (pixel - 3.5)  # [batch, 2, 8]: where the rows, and the columns, are read
        share = relu(1 - abs(place[:, :, :, None] - pixel))  # how much each pixel there counts (bilinear)
        crop = einsum(share[:, 0], image + 1, share[:, 1], equation="bij,bcjk,blk->bcil")
        return g.expr(contrast * crop - 1 + grain, name="seen")

    def project(image):
        code = encoder(image)
        return projector(code, name="projected")

    with g.scope("one"):
        one = view(image)
    with g.scope("other"):
        other = view(image)
    with g.scope("of_one"):
        of_one = project(one)
    with g.scope("of_other"):
        of_other = project(other)
    step = g.update([encoder, projector], loss=nt_xent(of_one, of_other, temperature=TEMPERATURE), optimizer=adam(2e-3))

    features = encoder(image, mode="infer")  # what is kept of all this
    return g.build(
        outputs=[step.loss, features],
        data={"train": {"source": "digits", "batch": 128, "shuffle": True}},
        run={"steps": 1200, "log_every": 100},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

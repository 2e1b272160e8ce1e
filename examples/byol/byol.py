"""BYOL, declared in Python: the spec of byol.yaml. `python byol.py > byol-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, cosine

NOISE, DECAY = 0.3, 0.99
SHIFT = {"torch": "views:shift", "tensorflow": "views:shift_tf"}


def declare() -> GraphSpec:
    g = Graph("byol")
    image = g.input("image", ["batch", 1, 8, 8])

    # No bias where the next BatchNorm subtracts it again: its gradient is pure rounding, and Adam would step by it.
    def linear(out):
        return {"linear": {"out": out, "bias": False}}

    def conv(out, **options):
        return [{"conv2d": {"out": out, **options}}, "relu"]

    convs = [*conv(32, kernel=3, padding=1), {"max_pool": 2}, *conv(64, kernel=3, padding=1), {"max_pool": 2}]
    encoder = g.model("encoder", layers=[*convs, *conv(128, kernel=2, bias=False), "flatten"])
    projector = g.model("projector", layers=[linear(128), "batch_norm", "relu", linear(64)])
    predictor = g.model("predictor", layers=[linear(128), "batch_norm", "relu", {"linear": 64}])
    late_encoder = g.model("late_encoder", like=encoder)
    # It normalizes by its own batches, so it needs no statistics of others.
    late_projector = g.model("late_projector", like=projector, buffers="ignore")

    def view(number):
        """Return the digit, moved by up to a pixel along both axes, and with noise."""
        move = g.randint(f"move_{number}", ["batch", 2], low=-1, high=2)
        moved = g.call(SHIFT, image, move, name=f"moved_{number}")
        grain = g.normal(f"grain_{number}", like=image, std=NOISE)
        return g.expr(moved + grain, name=f"view_{number}")

    view_1, view_2 = view(1), view(2)

    # The online net predicts from one view what the target net makes of the other.
    code_1, code_2 = encoder(view_1), encoder(view_2)
    small_1, small_2 = projector(code_1), projector(code_2)
    guess_1, guess_2 = predictor(small_1), predictor(small_2)

    late_code_1, late_code_2 = late_encoder(view_1), late_encoder(view_2)
    goal_1 = late_projector(late_code_1, train=True, stop=True)  # train: by the statistics of the batch
    goal_2 = late_projector(late_code_2, train=True, stop=True)

    apart_1 = cosine(guess_1, goal_2, weight=2)  # the squared distance of the two directions
    apart_2 = cosine(guess_2, goal_1, weight=2)
    loss = g.expr(apart_1 + apart_2, mode="train")
    g.update([encoder, projector, predictor], loss=loss, optimizer=adam(2e-3), name="step")
    g.ema(encoder, into=late_encoder, decay=DECAY, name="follow_encoder")
    g.ema(projector, into=late_projector, decay=DECAY, name="follow_projector")

    features = encoder(image, mode="infer")  # what is kept of all this
    return g.build(
        outputs=[loss, features],
        data={"train": {"source": "digits", "batch": 128, "shuffle": True}},
        run={"steps": 1200, "log_every": 100},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

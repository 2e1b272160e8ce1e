"""The reasons why numbers differ by design, one line each, with the page that explains it."""

from __future__ import annotations

EPSILON = "epsilon: added after the bias correction (Adam), and outside the root (RMSprop, Adagrad)"
DECAY = "weight decay: added to the gradient in every rule but adamw and lion"
COSINE = "cosine: 1 - cosine, not -cosine"
LABELS = "hinge: targets are used as given; a 0 does not become -1"
CLAMP = "bce: logarithms are clamped at -100, not probabilities at 1e-7"
MICRO_STEPS = "loss scale with `accumulate`: growth counts steps, as in Keras; PyTorch counts windows"
BOUNDARY = "piecewise: a boundary is the first count of the new value, as in optax and PyTorch"
START = "rmsprop: the average of squares starts at 0, as in PyTorch; in TensorFlow 1 it starts at 1"

PAGES = {
    EPSILON: "backends.md#what-keras-means-by-a-name",
    DECAY: "backends.md#what-keras-means-by-a-name",
    COSINE: "backends.md#what-keras-means-by-a-name",
    LABELS: "backends.md#what-keras-means-by-a-name",
    CLAMP: "backends.md#what-keras-means-by-a-name",
    MICRO_STEPS: "semantics.md#the-loss-scale-and-windows",
    START: "language.md#optimizers",
    BOUNDARY: "language.md#schedules",
}
"""The page of each reason, relative to docs/."""

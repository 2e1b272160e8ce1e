"""Two sources of batches, copied beside a spec: one that keeps a state, and one that is read again."""

from __future__ import annotations

import numpy as np


class Stream:
    """Forty batches in an epoch, drawn from a generator that goes on through all epochs."""

    def __init__(self):
        self.random = np.random.default_rng(3)
        self.index = 0

    def __iter__(self):
        while self.index < 40:
            x = self.random.normal(size=(8, 4)).astype("float32")
            self.index += 1
            yield {"x": x, "y": (x.sum(axis=1, keepdims=True) > 0).astype("float32")}
        self.index = 0

    def state_dict(self):
        return {"random": self.random.bit_generator.state, "index": self.index, "more": np.arange(3)}

    def load_state_dict(self, state):
        self.random.bit_generator.state = state["random"]
        self.index = state["index"]


class Plain:
    """Thirty batches, the same in every epoch."""

    def __iter__(self):
        drawn = np.random.default_rng(5)
        for _ in range(30):
            x = drawn.normal(size=(8, 4)).astype("float32")
            yield {"x": x, "y": x[:, :1] * 2}

"""The step of stylegan2_lazy.py with the factors written out: the spec of stylegan2-factors.yaml, which this prints."""

from __future__ import annotations

import stylegan2_lazy
from stylegan2_lazy import EVERY_D, EVERY_G

from graphspec import GraphSpec, dump


def declare() -> GraphSpec:
    # `lazy: none` takes a loss as it is, so the weights of both penalties say that each stands for 16, or 8, steps.
    return stylegan2_lazy.declare("stylegan2-factors", lazy="none", weight_g=2.0 * EVERY_G, weight_d=320.0 * EVERY_D)


if __name__ == "__main__":
    print(dump(declare()), end="")

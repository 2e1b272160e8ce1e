"""Specs for the tests: a small regression with whatever model and ops a test is about."""

from __future__ import annotations

import numpy as np

from compiler import Plan, compile_step
from graphspec import load
from runtime import Step, build

USERS = "tests.backends.tensorflow.users"
ADAM = "optimizer: {name: adam, lr: 0.01}"
OPS = """
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t]}
  step: {update: net, loss: loss}
"""


def user(name: str, more: str = "") -> str:
    """Return the declaration of a model of a user's class."""
    return f"{{class: '{USERS}:{name}', {ADAM}{more}}}"


def plan_of(net: str, ops: str = OPS, others: str = "", outputs: str = "[loss]", rng: str = "native") -> Plan:
    """Return the plan of a regression from x [batch, 4] to t [batch, 3]."""
    head = f"graphspec: 1\nname: test\nrng: {rng}\ninputs: {{x: {{shape: [batch, 4]}}, t: {{shape: [batch, 3]}}}}\n"
    text = f"{head}models:\n  net: {net}{others}\nops:{ops}outputs: {outputs}\n"
    return compile_step(load(text), "tensorflow")


def build_of(
    net: str, ops: str = OPS, others: str = "", outputs: str = "[loss]", rng: str = "native", **more: object
) -> Step:
    """Return the built step of a regression."""
    return build(plan_of(net, ops, others, outputs, rng), device="cpu", allow=[USERS], **more)


def batch_of(size: int = 6) -> dict[str, object]:
    """Return a batch of the regression."""
    random = np.random.default_rng(size)
    return {"x": random.normal(size=(size, 4)).astype("float32"), "t": np.ones((size, 3), "float32")}

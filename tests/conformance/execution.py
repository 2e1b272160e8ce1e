"""Emitted steps of TensorFlow, executed without the checks that ``build`` makes beforehand: eagerly, or as graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from compiler import Plan
from runtime.api import emit
from runtime.backends.tensorflow.library.modules import named_buffers, named_parameters
from runtime.backends.torch.library import threefry
from tests.conformance.users import make_models
from tests.properties.execution import execute


def portable_numbers(key: object, count: object, kind: str) -> tf.Tensor:
    """Return the numbers of a key as PyTorch's library makes them: the same, in a tenth of the time without a graph."""
    high, low = (int(word) for word in key)
    return tf.constant(threefry.portable_numbers((high, low), int(count), kind).numpy())


class TensorFlowExecution:
    """A plan that runs on the CPU in float64; ``swift``: random numbers are made by PyTorch, and not as in a graph."""

    def __init__(self, plan: Plan, text: str | None = None, *, swift: bool = False) -> None:
        self.names = execute(emit(plan) if text is None else text)
        if swift and "portable_numbers" in self.names:
            self.names["portable_numbers"] = portable_numbers
        self.names["build"](seed=plan.spec.seed, device="cpu", dtype=tf.float64, models=make_models(plan.spec))
        self.models: Mapping[str, object] = self.names["MODELS"]

    def state(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Return copies of all parameters and buffers, and of the declared states."""
        held = {name: one.numpy().copy() for name, one in self.names.get("STATE", {}).items()}
        return {**self._models(), "state": held} if held else self._models()

    def counters(self) -> Mapping[str, np.ndarray]:
        """Return how often every optimizer was applied, and the loss scale, if there is one."""
        found = {name: one.applied.numpy() for name, one in self.names.get("OPTIMIZERS", {}).items()}
        scale = self.names.get("loss_scale")
        return found if scale is None else {**found, "loss_scale": scale.scale.numpy()}

    def _models(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Return copies of all parameters and buffers."""
        return {
            name: {key: each.numpy().copy() for key, each in {**named_parameters(one), **named_buffers(one)}.items()}
            for name, one in self.models.items()
        }

    def step(
        self, batch: Mapping[str, np.ndarray], mode: str = "train", *dataset: str | None
    ) -> Mapping[str, np.ndarray]:
        """Take one step, and return its outputs."""
        found = self.names["step"]({name: tf.constant(value) for name, value in batch.items()}, mode, *dataset)
        return {name: value.numpy() for name, value in found.items()}


@contextmanager
def running(*, eagerly: bool) -> Iterator[None]:
    """Run the functions of TensorFlow inside as Python, or as graphs."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)

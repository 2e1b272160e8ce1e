"""Tracing: step functions as graphs, each traced once for batches of any size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

NUMBER = tf.TensorSpec((), tf.int64)
"""The number of a step, a tensor so that steps do not differ for tracing."""


class Compiled:
    """A step function as a graph; sizes that the spec leaves open stay open, so that it is traced once."""

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Mapping[str, tf.TensorSpec],
        *,
        device: str,
        numbered: bool,
        jit_compile: bool,
    ) -> None:
        self.function, self.inputs, self.device, self.jit_compile = function, dict(inputs), device, jit_compile
        self.signature = [*self.inputs.values(), *([NUMBER] if numbered else [])]
        self.begin()

    def begin(self) -> None:
        """Trace anew with the next call: after what Python had put into the graph has changed."""
        self.traced = tf.function(self.run, self.signature, autograph=False, jit_compile=self.jit_compile or None)
        self.graph: Callable[..., Any] | None = None

    def run(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run the function as Python, on its device; tracing does."""
        batch = dict(zip(self.inputs, tensors, strict=False))
        with tf.device(self.device):
            return self.function(batch, *tensors[len(batch) :])

    def __call__(self, batch: Mapping[str, Any], *number: tf.Tensor) -> dict[str, tf.Tensor]:
        """Run the graph on the inputs that it takes out of a batch."""
        graph = self.graph = self.graph or self.find_graph()
        return graph(*[batch[name] for name in self.inputs], *number)

    def find_graph(self) -> Callable[..., Any]:
        """Return the one graph: to choose among several takes as long as a small step."""
        return self.traced if tf.config.functions_run_eagerly() else self.traced.get_concrete_function()


def compiled(
    function: Callable[..., Any],
    inputs: Mapping[str, tf.TensorSpec],
    *,
    device: str,
    numbered: bool = False,
    jit_compile: bool = False,
) -> Compiled:
    """Return a step function as a graph of TensorFlow, compiled by XLA if wished.

    ``inputs``: shape and type of every input, None for open sizes; ``numbered``: it is given the number of the step.
    """
    return Compiled(function, inputs, device=device, numbered=numbered, jit_compile=jit_compile)

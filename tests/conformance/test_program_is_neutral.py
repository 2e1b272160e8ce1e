"""The program is no PyTorch in disguise: a short interpreter runs a DCGAN-order step on TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from compiler import compile_step
from compiler.ir.instructions import Apply, Blend, Emit, Evaluate, Forward, Gradient, Release
from compiler.ir.program import LayerDecl, ModelDecl, Program
from compiler.ir.value import Ref
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: dcgan-order
inputs: {image: {shape: [batch, 6], dtype: float64}, z: {shape: [batch, 3], dtype: float64}}
models:
  generator: {layers: [{linear: 8}, tanh, {linear: 6}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
  discriminator: {layers: [{linear: 8}, {leaky_relu: 0.2}, {linear: 1}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
  sampler: {like: generator}
ops:
  fake: {forward: generator, inputs: z}
  on_real: {forward: discriminator, inputs: image}
  on_fake: {forward: discriminator, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: discriminator, loss: d_loss}
  judged: {forward: discriminator, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: g_loss}
  average: {ema: generator, into: sampler, decay: 0.9}
outputs: [d_loss, g_loss]
"""


class Spike:
    """Runs the train function of a program on TensorFlow: eager, one persistent tape, SGD with momentum by hand."""

    def __init__(self, program: Program, weights: dict[str, list[np.ndarray]]) -> None:
        import tensorflow as tf

        self.tf, self.program = tf, program
        self.weights = {name: [tf.Variable(w) for w in values] for name, values in weights.items()}
        self.momenta = {name: [tf.Variable(w * 0) for w in values] for name, values in self.weights.items()}
        self.options = {each.name: each.options for each in program.optimizers}

    def step(self, batch: dict[str, np.ndarray]) -> dict[str, float]:
        values: dict[str, Any] = {name: self.tf.constant(array) for name, array in batch.items()}
        with self.tf.GradientTape(persistent=True) as tape:
            for instruction in self.program.mode("train").functions[0].instructions:
                if isinstance(instruction, Emit):
                    return {name: float(values[name]) for name in instruction.values}
                self.run(instruction, values, tape)
        raise AssertionError("a function ends with emit")

    def run(self, instruction: object, values: dict[str, Any], tape: Any) -> None:
        match instruction:
            case Forward():
                # of calls that are joined, each by itself
                for output, given in zip(instruction.outputs, self.arguments(instruction, values), strict=True):
                    values[output] = self.call(instruction.model, given)
            case Evaluate():
                values[instruction.outputs[0]] = self.evaluate(instruction, *self.arguments(instruction, values))
            case Gradient():
                sources = [w for model in instruction.models for w in self.weights[model]]
                with tape.stop_recording():
                    values[instruction.output] = tape.gradient(values[instruction.loss], sources)
            case Apply():
                for part in instruction.parts:
                    self.apply(part.optimizer, part.models[0], values[part.gradients])
            case Blend():
                for old, new in zip(self.weights[instruction.target], self.weights[instruction.source], strict=True):
                    old.assign(instruction.decay * old + (1 - instruction.decay) * new)
            case Release():
                for name in instruction.values:
                    del values[name]
            case _:
                raise AssertionError(f"unexpected {instruction}")

    def arguments(self, instruction: Forward | Evaluate, values: dict[str, Any]) -> list[Any]:
        operands = [argument.operand for argument in instruction.arguments]
        return [values[each.name] if isinstance(each, Ref) else each.value for each in operands]

    def call(self, model: str, x: Any) -> Any:
        weights = iter(self.weights[model])
        for layer in self.program.model(model).layers:
            x = self.layer(layer, x, weights)
        return x

    def layer(self, layer: LayerDecl, x: Any, weights: Any) -> Any:
        match layer.kind:
            case "linear":
                return self.tf.linalg.matmul(x, next(weights), transpose_b=True) + next(weights)
            case "leaky_relu":
                # tf.nn.leaky_relu keeps its slope as a float32 attribute: 3e-9 off in float64
                return self.tf.where(x > 0, x, layer.options["negative_slope"] * x)
            case _:
                return self.tf.tanh(x)

    def evaluate(self, instruction: Evaluate, first: Any, second: Any) -> Any:
        if instruction.function.name == "add":
            return first + second
        return self.tf.reduce_mean(self.tf.nn.softplus(first) - second * first)

    def apply(self, optimizer: str, model: str, gradients: list[Any]) -> None:
        options = self.options[optimizer]
        for weight, momentum, gradient in zip(self.weights[model], self.momenta[model], gradients, strict=True):
            momentum.assign(options["momentum"] * momentum + gradient)
            weight.assign_sub(options["lr"] * momentum)


def weights_of(step: Any, model: ModelDecl) -> list[np.ndarray]:
    """Return the weights of a built model in the order of its declaration."""
    parameters = dict(step.models[model.name].named_parameters())
    return [parameters[each.name].detach().double().numpy().copy() for each in model.parameters]


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_ten_dcgan_steps_on_tensorflow_equal_the_pytorch_backend(backend: str) -> None:
    spec = load(SPEC)
    step = build(compile_step(spec), device="cpu", seed=3, dtype="float64")
    program = compile_step(spec, backend=backend).program
    spike = Spike(program, {model.name: weights_of(step, model) for model in program.models})
    generator = np.random.default_rng(0)
    for _ in range(10):
        batch = {"image": generator.normal(size=(5, 6)), "z": generator.normal(size=(5, 3))}
        found, expected = spike.step(batch), step(batch)
        assert found == pytest.approx({name: float(value) for name, value in expected.items()}, abs=1e-12)
    for model in program.models:
        for ours, theirs in zip(spike.weights[model.name], weights_of(step, model), strict=True):
            assert np.abs(ours.numpy() - theirs).max() < 1e-12


@pytest.mark.needs("torch", "tensorflow")
def test_the_spike_would_notice_a_generator_judged_before_the_discriminators_update() -> None:
    before = load(SPEC.replace("after: step_d", "after: []"))
    step = build(compile_step(before), device="cpu", seed=3, dtype="float64")
    program = compile_step(load(SPEC), backend="tensorflow").program
    spike = Spike(program, {model.name: weights_of(step, model) for model in program.models})
    batch = {"image": np.ones((5, 6)), "z": np.ones((5, 3))}
    assert abs(spike.step(batch)["g_loss"] - float(step(batch)["g_loss"])) > 1e-3
    assert torch.get_default_dtype() is torch.float32

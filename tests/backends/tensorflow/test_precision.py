"""Models that compute in a lower precision train as a loop with casts written by hand."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from compiler import compile_step
from graphspec import load
from runtime import Step, build

TYPES = {"float16": tf.float16, "bfloat16": tf.bfloat16}
DIGIT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The last digit of 1."""
REGRESSION = """graphspec: 1
name: regression
precision: {{compute: {0}, loss_scale: none}}
inputs: {{x: {{shape: [batch, 2, 4, 4]}}, t: {{shape: [batch, 3]}}}}
models:
  net:
    layers: [{{conv2d: {{out: 4, kernel: 3}}}}, relu, flatten, layer_norm, {{linear: {{out: 3, bias: false}}}}]
    optimizer: {{name: sgd, lr: 0.1}}
ops:
  y: {{forward: net, inputs: x, outputs: [y, {{inner: {{tap: 0}}}}]}}
  loss: {{loss: mse, inputs: [y, t]}}
  slopes: {{gradient: loss, wrt: net}}
  step: {{update: net, gradients: slopes}}
outputs: [loss, y, inner]
"""
USERS = """graphspec: 1
name: users
precision: {compute: float16, loss_scale: none}
inputs: {x: {shape: [batch, 4]}}
models:
  early: {class: 'tests.backends.tensorflow.test_precision:make_early', optimizer: {name: sgd, lr: 0.1}}
  late: {class: 'tests.backends.tensorflow.test_precision:Late', precision: bfloat16, optimizer: {name: sgd, lr: 0.1}}
  module: {class: 'tests.backends.tensorflow.test_precision:Module', optimizer: {name: sgd, lr: 0.1}}
ops:
  a: {forward: early, inputs: x, outputs: [a, {inner: {tap: layers.0}}]}
  b: {forward: late, inputs: a, outputs: [b, count]}
  c: {forward: module, inputs: b}
  loss: {call: mean, inputs: c}
  step: {update: [early, late, module], loss: loss}
outputs: [a, inner, b, count, c, loss]
"""


def make_early() -> keras.Model:
    """Return two layers."""
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(4)])


class Late(keras.Model):
    """Makes its layer when it is called first, and gives several results."""

    def build(self, shape: tuple[int, ...]) -> None:
        """Make the layer."""
        self.dense = keras.layers.Dense(4)
        self.dense.build(shape)

    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return a result of matrices, and a count."""
        y = self.dense(x)
        return {"b": y, "count": tf.math.count_nonzero(y > 0)}


class Module(tf.Module):
    """A matrix by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((4, 4)))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return x W."""
        return x @ self.weight


def made(text: str, dtype: str = "float32", **more: object) -> Step:
    """Return the step of a spec on the CPU."""
    return build(compile_step(load(text), "tensorflow"), device="cpu", dtype=dtype, allow=("tests",), **more)


def batches(count: int = 10, dtype: str = "float32"):
    """Yield batches of normal numbers."""
    random = np.random.default_rng(1)
    for _ in range(count):
        x, t = random.normal(size=(6, 2, 4, 4)), random.normal(size=(6, 3))
        yield {"x": x.astype(dtype), "t": t.astype(dtype)}


def net(weights: list[tf.Variable], x: tf.Tensor, low: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what the regression gives, and what its first layer does; every cast by hand."""
    names = ("0.weight", "0.bias", "3.weight", "3.bias", "4.weight")
    kernel, bias, gain, shift, matrix = (weights[name] for name in names)
    image, kernel = (tf.cast(each, low) for each in (tf.transpose(x, (0, 2, 3, 1)), tf.transpose(kernel, (2, 3, 1, 0))))
    inner = tf.transpose(tf.nn.bias_add(tf.nn.conv2d(image, kernel, 1, "VALID"), tf.cast(bias, low)), (0, 3, 1, 2))
    rows = tf.cast(tf.reshape(tf.nn.relu(inner), (-1, 16)), tf.float32)
    mean = tf.reduce_mean(rows, -1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(rows - mean), -1, keepdims=True) + 1e-5)
    rows = (rows - mean) * scale * gain + shift
    y = tf.cast(rows, low) @ tf.cast(tf.transpose(matrix), low)
    return tf.cast(y, tf.float32), tf.cast(inner, tf.float32)


def loop(weights: dict[str, tf.Variable], low: tf.DType) -> Callable[..., dict[str, tf.Tensor]]:
    """Return a training step by hand, which computes in a type, as a graph: outside of graphs kernels round oftener."""

    @tf.function
    def train(x: tf.Tensor, t: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            y, inner = net(weights, x, low)
            loss = tf.reduce_mean(tf.square(y - t))
        for variable, gradient in zip(weights.values(), tape.gradient(loss, list(weights.values())), strict=True):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss, "y": y, "inner": inner, **{name: variable.value() for name, variable in weights.items()}}

    return train


# A processor may fuse float32 operations of one of the two, and the last digit of a float32 decides now and then how a
# number is rounded to 16 bits. So every step begins with the same weights, most numbers must be the same to the last
# bit, and the others by one digit of the type. A loop without casts has hardly any of them.
@pytest.mark.parametrize("compute", TYPES)
def test_ten_steps_are_those_of_a_loop_with_casts(compute: str) -> None:
    step = made(REGRESSION.format(compute))
    parameters = step.models["net"].named_parameters()
    casting, wide = ({name: tf.Variable(value) for name, value in parameters.items()} for _ in range(2))
    trained = {"casts": (casting, loop(casting, TYPES[compute])), "no casts": (wide, loop(wide, tf.float32))}
    same = {name: [] for name in trained}
    for batch in batches():
        expected = {}
        for name, (weights, train) in trained.items():
            for key, variable in weights.items():
                variable.assign(parameters[key])
            expected[name] = train(**batch)
        found = {**step(batch), **parameters}
        for name, values in expected.items():
            same[name] += [np.ravel(np.equal(found[key], values[key])) for key in ("y", "inner")]
        for key, value in expected["casts"].items():
            np.testing.assert_allclose(found[key], value, rtol=DIGIT[compute], atol=DIGIT[compute])
    shares = {name: np.concatenate(found).mean() for name, found in same.items()}
    assert shares["casts"] > 0.95
    assert shares["no casts"] < 0.05


def test_weights_slots_and_values_are_float32_in_a_step_of_float32() -> None:
    step = made(REGRESSION.format("float16"))
    outputs = step(next(batches(1)))
    assert {each.dtype for each in outputs.values()} == {tf.float32}
    assert {each.dtype.name for each in step.state().arrays.values() if each.dtype.kind == "f"} == {"float32"}


@pytest.mark.parametrize("compute", TYPES)
def test_in_double_precision_it_is_off(compute: str) -> None:
    one, other = (made(REGRESSION.format(each), "float64") for each in (compute, "float32"))
    for batch in batches(3, "float64"):
        found, expected = one(batch), other(batch)
        assert all(bool(tf.reduce_all(found[name] == expected[name])) for name in expected)


def test_layers_of_keras_compute_in_the_precision_of_their_model() -> None:
    step = made(USERS)
    outputs = step({"x": np.ones((3, 4), "float32")})
    assert [each.compute_dtype for each in step.models["early"].layers] == ["float16", "float16"]
    assert step.models["late"].dense.compute_dtype == "bfloat16"
    assert outputs["count"].dtype == tf.int64
    assert {each.dtype for name, each in outputs.items() if name != "count"} == {tf.float32}


def test_what_computes_as_it_is_written_is_told() -> None:
    given = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(4)])
    told = [note for note in made(USERS, models={"early": given}).notes if "computes as written" in note]
    assert [note.split()[0] for note in told] == ["'early'", "'module'"]
    assert {each.compute_dtype for each in given.layers} == {"float32"}

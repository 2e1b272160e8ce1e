"""A step against loops with ``tf.GradientTape`` written by hand."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from compiler import compile_step
from graphspec import load
from runtime import build
from tests.backends.tensorflow.specs import ADAM, OPS, batch_of, build_of, user

GAN = """
graphspec: 1
name: gan
inputs: {image: {shape: [batch, 4]}, z: {shape: [batch, 2]}}
models:
  g: {layers: [{linear: 5}, tanh, {linear: 4}], optimizer: {name: sgd, lr: 0.1}}
  d: {layers: [{linear: 5}, tanh, {linear: 1}], optimizer: {name: sgd, lr: 0.2}}
ops:
  fake: {forward: g, inputs: z}
  on_real: {forward: d, inputs: image}
  on_fake: {forward: d, inputs: fake}
  d_real: {loss: bce_with_logits, inputs: [on_real, 1.0]}
  d_fake: {loss: bce_with_logits, inputs: [on_fake, 0.0]}
  d_loss: {call: add, inputs: [d_real, d_fake]}
  step_d: {update: d, loss: d_loss}
  judged: {forward: d, inputs: fake, after: step_d}
  g_loss: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: g, loss: g_loss}
outputs: [d_loss, g_loss]
"""


def mlp(weights, x):
    """Return two layers of the language, by their definition."""
    w, b, v, c = weights
    return tf.linalg.matmul(tf.tanh(tf.linalg.matmul(x, w, transpose_b=True) + b), v, transpose_b=True) + c


def bce(logits, target):
    """Return the cross-entropy of Bernoulli numbers, by its definition."""
    p = tf.sigmoid(logits)
    return -tf.reduce_mean(target * tf.math.log(p) + (1 - target) * tf.math.log(1 - p))


def judge_by_hand(g, d, image, z):
    """Take one step of the GAN, generator after the discriminator's step; return the losses."""
    with tf.GradientTape() as tape:
        d_loss = bce(mlp(d, image), 1.0) + bce(mlp(d, tf.stop_gradient(mlp(g, z))), 0.0)
    for variable, gradient in zip(d, tape.gradient(d_loss, d), strict=True):
        variable.assign_sub(0.2 * gradient)
    with tf.GradientTape() as tape:
        g_loss = bce(mlp(d, mlp(g, z)), 1.0)
    for variable, gradient in zip(g, tape.gradient(g_loss, g), strict=True):
        variable.assign_sub(0.1 * gradient)
    return d_loss, g_loss


def test_a_gan_agrees_with_its_loop_by_hand():
    step = build(compile_step(load(GAN), "tensorflow"), device="cpu", dtype="float64")
    g, d = ([tf.Variable(each) for each in step.models[name].parameters()] for name in ("g", "d"))
    random = np.random.default_rng(0)
    for size in (4, 6, 3, 6, 5):
        image, z = random.normal(size=(size, 4)), random.normal(size=(size, 2))
        outputs = step({"image": image, "z": z})
        for name, expected in zip(("d_loss", "g_loss"), judge_by_hand(g, d, image, z), strict=True):
            assert np.isclose(outputs[name], expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip([*step.models["g"].parameters(), *step.models["d"].parameters()], [*g, *d], strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10, atol=1e-12)


def adam_by_hand(variables, moments, gradients, step):
    """Step with Adam as Kingma and Ba wrote it, lr 0.01."""
    for variable, (m, v), g in zip(variables, moments, gradients, strict=True):
        m.assign(0.9 * m + 0.1 * g)
        v.assign(0.999 * v + 0.001 * g * g)
        variable.assign_sub(0.01 * (m / (1 - 0.9**step)) / (tf.sqrt(v / (1 - 0.999**step)) + 1e-8))


def test_a_model_of_keras_with_statistics_agrees_with_its_loop_by_hand():
    def make():
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(5, use_bias=False), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        model(np.zeros((1, 4), "float32"))
        return model

    given, ours = make(), make()
    step = build_of(user("Plain"), models={"net": given})
    moments = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in ours.trainable_variables]
    for number in range(1, 6):
        batch = batch_of(number + 3)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(ours(batch["x"], training=True) - batch["t"]))
        adam_by_hand(ours.trainable_variables, moments, tape.gradient(loss, ours.trainable_variables), number)
        assert np.isclose(step(batch)["loss"], loss, rtol=1e-5)
    for one, other in zip(given.variables, ours.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)


def test_a_class_and_its_layers_learn_together():
    others = f"\n  head: {{layers: [{{linear: 3}}], {ADAM}}}"
    ops = OPS.replace("{forward: net, inputs: x}", "{forward: head, inputs: h}") + "  h: {forward: net, inputs: x}\n"
    step = build_of(user("Plain"), ops.replace("update: net", "update: [net, head]"), others)
    losses = [float(step(batch_of())["loss"]) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]

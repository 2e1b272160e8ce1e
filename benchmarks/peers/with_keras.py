"""The steps in Keras on TensorFlow: a ``keras.Model`` with a ``train_step`` of its own, and ``fit``.

https://keras.io/guides/custom_train_step_in_tensorflow
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from safetensors.numpy import load_file

from benchmarks.peers.pace import CHECKED, Pace, find_folder

SPECS = Path(__file__).parents[1] / "specs"


class Step:
    """A step on TensorFlow: its spec, its batches, and its model in Keras."""

    def __init__(self, name: str) -> None:
        self.name, self.spec = name, SPECS / f"{name}.yaml"
        with np.load(find_folder() / "data.npz") as found:
            self.arrays = {each: found[each] for each in found.files}

    @property
    def rows(self) -> int:
        """Return how many rows a batch has."""
        return {"small-mlp": 16, "mlp-gan": 64, "sac": 128}[self.name]

    def batches(self) -> list[dict[str, tf.Tensor]]:
        """Return all batches, on the device."""
        whole = len(next(iter(self.arrays.values())))
        starts = range(0, whole, self.rows)
        return [
            {name: tf.constant(array[start : start + self.rows]) for name, array in self.arrays.items()}
            for start in starts
        ]

    def dataset(self) -> tf.data.Dataset:
        """Return the batches without end, as a data set in memory."""
        sliced = tf.data.Dataset.from_tensor_slices(self.arrays).batch(self.rows, drop_remainder=True)
        return sliced.cache().repeat().prefetch(2)


def find_step(name: str) -> Step:
    """Return the step with a name."""
    return Step(name)


def make_net(name: str, *sizes: Any) -> keras.Sequential:
    """Return a net of Keras with the initial weights of a model; its first size is that of its input."""
    width, *rest = sizes
    built = [layers.Dense(each) if isinstance(each, int) else each for each in rest]
    net = keras.Sequential([layers.Input((width,)), *built])
    state = load_file(find_folder() / f"{name}.safetensors")
    for place, layer in enumerate(built):
        if isinstance(layer, layers.Dense):
            layer.set_weights([state[f"{place}.weight"].T, state[f"{place}.bias"]])
    return net


def make_adam(rate: float, first: float = 0.9) -> keras.optimizers.Adam:
    """Return Adam with the numbers of PyTorch."""
    return keras.optimizers.Adam(rate, beta_1=first, beta_2=0.999, epsilon=1e-8)


def leaky() -> layers.Layer:
    """Return the leaky rectifier."""
    return layers.LeakyReLU(negative_slope=0.2)


class Trained(keras.Model):
    """A model whose step returns its losses as they are, without running means of them."""

    @property
    def metrics(self) -> list[Any]:
        """Return none: that of the loss, which every model has, would take the place of the loss."""
        return []


class Classifier(Trained):
    """The small classifier."""

    def __init__(self) -> None:
        super().__init__()
        relu = layers.Activation
        self.net = make_net("classifier", 32, 64, relu("relu"), 64, relu("relu"), 10)
        self.loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.adam = make_adam(1e-3)

    def train_step(self, data: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data["label"], self.net(data["x"], training=True))
        weights = self.net.trainable_weights
        self.adam.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


class Gan(Trained):
    """The GAN."""

    def __init__(self) -> None:
        super().__init__()
        norms = [layers.BatchNormalization(momentum=0.9, epsilon=0.8) for _ in range(2)]
        up = (128, leaky(), 256, norms[0], leaky(), 512, norms[1], leaky(), 784, layers.Activation("tanh"))
        down = (512, leaky(), 256, leaky(), 1, layers.Activation("sigmoid"))
        self.g, self.d = make_net("generator", 100, *up), make_net("discriminator", 784, *down)
        self.loss_of = keras.losses.BinaryCrossentropy()
        self.adam_g, self.adam_d = make_adam(2e-4, 0.5), make_adam(2e-4, 0.5)

    def train_step(self, data: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        image, rows = data["image"], tf.shape(data["image"])[0]
        ones, zeros = tf.ones((rows, 1)), tf.zeros((rows, 1))
        with tf.GradientTape() as tape_g:
            fake = self.g(data["z"], training=True)
            with tf.GradientTape() as tape_d:
                judged = self.d(tf.concat([image, tf.stop_gradient(fake)], 0), training=True)
                d_loss = self.loss_of(ones, judged[:rows]) + self.loss_of(zeros, judged[rows:])
            weights = self.d.trainable_weights
            self.adam_d.apply(tape_d.gradient(d_loss, weights), weights)
            g_loss = self.loss_of(ones, self.d(fake, training=True))
        weights = self.g.trainable_weights
        self.adam_g.apply(tape_g.gradient(g_loss, weights), weights)
        return {"d_loss": d_loss, "g_loss": g_loss}


class SoftActorCritic(Trained):
    """Soft actor-critic."""

    def __init__(self) -> None:
        super().__init__()

        def stack(name: str, width: int, outputs: int) -> keras.Sequential:
            """Return a net with two hidden layers."""
            return make_net(name, width, 64, layers.Activation("relu"), 64, layers.Activation("relu"), outputs)

        self.actor = stack("actor", 3, 2)
        self.critics = [stack(f"critic_{number}", 4, 1) for number in (1, 2)]
        self.late = [stack(f"critic_{number}", 4, 1) for number in (1, 2)]
        self.log_temperature = self.add_weight(shape=(), initializer="zeros", name="log_temperature")
        self.adam_critics, self.adam_actor = make_adam(3e-4), make_adam(3e-4)

    def act(self, state: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return actions, and the logarithm of their density."""
        middle, log_spread = tf.split(self.actor(state, training=True), 2, 1)
        log_spread = tf.clip_by_value(log_spread, -20.0, 2.0)
        action = tf.tanh(middle + tf.exp(log_spread) * noise)
        normal = -0.5 * noise**2 - log_spread - 0.5 * math.log(2 * math.pi)
        return action, normal - tf.math.log(1 + 1e-6 - action**2)

    def worth(self, nets: Sequence[Any], state: tf.Tensor, action: tf.Tensor) -> list[tf.Tensor]:
        """Return what two nets expect."""
        pair = tf.concat([state, action], 1)
        return [net(pair, training=True) for net in nets]

    def train_step(self, data: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        state, alpha = data["state"], tf.exp(self.log_temperature)
        next_action, next_log_p = self.act(data["next_state"], data["next_noise"])
        worth = tf.minimum(*self.worth(self.late, data["next_state"], next_action)) - alpha * next_log_p
        goal = tf.stop_gradient(data["reward"] + 0.98 * (1 - data["done"]) * worth)
        followed = [weight for critic in self.critics for weight in critic.trainable_weights]
        with tf.GradientTape() as tape:
            errors = [tf.reduce_mean((q - goal) ** 2) for q in self.worth(self.critics, state, data["action"])]
            critic_loss = errors[0] + errors[1]
        self.adam_critics.apply(tape.gradient(critic_loss, followed), followed)
        acting = [*self.actor.trainable_weights, self.log_temperature]
        with tf.GradientTape() as tape:
            action, log_p = self.act(state, data["noise"])
            judged = tf.minimum(*self.worth(self.critics, state, action))
            actor_loss = tf.reduce_mean(tf.stop_gradient(alpha) * log_p - judged)
            alpha_loss = -tf.reduce_mean(tf.exp(self.log_temperature) * tf.stop_gradient(log_p - 1.0))
            both = actor_loss + alpha_loss
        self.adam_actor.apply(tape.gradient(both, acting), acting)
        followers = [weight for late in self.late for weight in late.trainable_weights]
        for late, weight in zip(followers, followed, strict=True):
            late.assign(late + 0.005 * (ops.convert_to_tensor(weight) - late))
        return {"step_critics.loss": critic_loss, "step_actor.loss": actor_loss, "step_alpha.loss": alpha_loss}


MODELS = {"small-mlp": Classifier, "mlp-gan": Gan, "sac": SoftActorCritic}


class Stopwatch(keras.callbacks.Callback):
    """Keeps the losses of every epoch, and times it."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace
        self.wall = self.cpu = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.wall, self.cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        self.pace.keep(logs or {})


def fit(step: Step, pace: Pace, steps: int = 1, xla: bool | str = "auto") -> None:
    """Take steps inside of `fit`: a slice is the second of two epochs, the first of which makes the iterator.

    By default Keras lets XLA compile what it can, which is all of these steps.
    """
    model = MODELS[step.name]()
    model.compile(jit_compile=xla)
    dataset, watch = step.dataset(), Stopwatch(pace)
    for count in pace.slices():
        if not pace.losses:  # each of the first steps is an epoch, so that its losses are kept
            model.fit(dataset, epochs=CHECKED, steps_per_epoch=1, callbacks=[watch], verbose=0)
            model.compile(jit_compile=xla, steps_per_execution=steps)
        whole = max(1, round(count / steps)) * steps
        model.fit(dataset, epochs=2, steps_per_epoch=whole, callbacks=[watch], verbose=0)
        pace.answer(watch.wall, watch.cpu, whole)


def fit_plainly(step: Step, pace: Pace) -> None:
    """Take steps inside of `fit` that XLA does not compile."""
    fit(step, pace, xla=False)


def fit_sixteen(step: Step, pace: Pace) -> None:
    """Take steps inside of `fit`, sixteen in one call of the graph."""
    fit(step, pace, 16)


def call(step: Step, pace: Pace) -> None:
    """Take steps of the same model in a plain loop that calls a graph."""
    model = MODELS[step.name]()
    sample = step.batches()[0]
    traced = tf.function(model.train_step, autograph=False).get_concrete_function(sample)
    for batch in pace:
        pace.keep(traced(batch))

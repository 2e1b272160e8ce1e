"""The same three steps by hand in TensorFlow, each as one ``tf.function``: with plain operations, and with Keras.

The noise of a step is part of its batch. Weights are taken from the nets that ``build`` makes, so that all versions can
be compared number by number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

Batch = dict[str, tf.Tensor]
Step = Callable[[Batch], Mapping[str, Any]]
State = Mapping[str, np.ndarray]
SPECS = Path(__file__).parent / "specs"


class Adam:
    """Adam with plain operations, bias correction on the moments."""

    def __init__(self, weights: Sequence[tf.Variable], lr: float, beta_1: float = 0.9, beta_2: float = 0.999) -> None:
        self.weights, self.lr, self.betas = weights, lr, (beta_1, beta_2)
        self.moments = [(tf.Variable(tf.zeros_like(each)), tf.Variable(tf.zeros_like(each))) for each in weights]
        self.count = tf.Variable(0.0)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Take a step."""
        first, second = self.betas
        count = self.count.assign_add(1.0)
        rate = self.lr / (1 - tf.pow(first, count))
        root = tf.sqrt(1 - tf.pow(second, count))
        for weight, gradient, (m, v) in zip(self.weights, gradients, self.moments, strict=True):
            m.assign(first * m + (1 - first) * gradient)
            v.assign(second * v + (1 - second) * tf.square(gradient))
            weight.assign_sub(rate * m / (tf.sqrt(v) / root + 1e-8))


class BatchNorm:
    """Normalization over the batch, with running statistics."""

    def __init__(self, state: State, place: str, eps: float = 1e-5) -> None:
        self.scale, self.shift = (tf.Variable(state[f"{place}.{name}"]) for name in ("weight", "bias"))
        self.mean, self.variance = (tf.Variable(state[f"{place}.{name}"]) for name in ("running_mean", "running_var"))
        self.eps, self.trained = eps, [self.scale, self.shift]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return x normalized, and move the statistics."""
        mean, variance = tf.nn.moments(x, 0)
        count = tf.cast(tf.shape(x)[0], x.dtype)
        self.mean.assign(0.9 * self.mean + 0.1 * mean)
        self.variance.assign(0.9 * self.variance + 0.1 * variance * count / (count - 1))
        return tf.nn.batch_normalization(x, mean, variance, self.shift, self.scale, self.eps)


class Dense:
    """x W + b."""

    def __init__(self, state: State, place: str) -> None:
        self.weight, self.bias = tf.Variable(state[f"{place}.weight"].T), tf.Variable(state[f"{place}.bias"])
        self.trained = [self.weight, self.bias]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return the product."""
        return tf.matmul(x, self.weight) + self.bias


class Net:
    """Layers in a row; plain functions have no weights."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers
        self.trained = [each for layer in layers for each in getattr(layer, "trained", ())]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return what the last layer gives."""
        for layer in self.layers:
            x = layer(x)
        return x


class Workload(ABC):
    """A step by hand. Make a new one for every loop."""

    name: ClassVar[str]

    spec: ClassVar[Path]
    """The file of the spec."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self.states = states

    def __init_subclass__(cls) -> None:
        cls.spec = SPECS / f"{cls.name}.yaml"

    @staticmethod
    @abstractmethod
    def batch(generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw a batch."""

    @classmethod
    def batches(cls, count: int) -> list[Batch]:
        """Return batches, the same every time."""
        generator = np.random.default_rng(1)
        drawn = (cls.batch(generator) for _ in range(count))
        return [{name: tf.constant(value) for name, value in batch.items()} for batch in drawn]

    @abstractmethod
    def expert(self) -> Callable[..., Mapping[str, Any]]:
        """Return the step with plain operations."""

    @abstractmethod
    def idiom(self) -> Callable[..., Mapping[str, Any]]:
        """Return the step with the layers and the optimizer of Keras."""


def normal(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Return normal numbers."""
    return generator.normal(size=shape).astype(np.float32)


def leaky(x: tf.Tensor) -> tf.Tensor:
    """Return the leaky rectifier of x."""
    return tf.nn.leaky_relu(x, 0.2)


def keras_stack(sizes: Sequence[Any], width: int, state: State) -> Any:
    """Return a model of Keras with the weights of a state; ``sizes``: widths of layers, else layers."""
    layers = [tf.keras.layers.Dense(each) if isinstance(each, int) else each for each in sizes]
    model = tf.keras.Sequential([tf.keras.layers.Input((width,)), *layers])
    for place, layer in enumerate(layers):
        found = [state[f"{place}.{name}"] for name in ("weight", "bias") if f"{place}.{name}" in state]
        if isinstance(layer, tf.keras.layers.Dense):
            layer.set_weights([found[0].T, found[1]])
    return model


def plain(variables: Sequence[Any]) -> list[tf.Variable]:
    """Return TensorFlow's variables behind those of Keras."""
    return [each.value for each in variables]


def keras_adam(lr: float, *betas: float) -> Any:
    """Return Adam of Keras."""
    first, second = betas or (0.9, 0.999)
    return tf.keras.optimizers.Adam(lr, beta_1=first, beta_2=second, epsilon=1e-8)


class MlpGan(Workload):
    """A GAN of fully connected nets in DCGAN's order, batch 64."""

    name = "mlp-gan"

    @staticmethod
    def batch(generator: np.random.Generator) -> dict[str, np.ndarray]:
        image = generator.uniform(-1, 1, (64, 784)).astype(np.float32)
        return {"image": image, "z": normal(generator, 64, 100)}

    def expert(self) -> Callable[..., Mapping[str, Any]]:
        g, d = self.states["generator"], self.states["discriminator"]
        net_g = Net(
            *(Dense(g, "0"), leaky, Dense(g, "2"), BatchNorm(g, "3", 0.8), leaky),
            *(Dense(g, "5"), BatchNorm(g, "6", 0.8), leaky, Dense(g, "8"), tf.tanh),
        )
        net_d = Net(Dense(d, "0"), leaky, Dense(d, "2"), leaky, Dense(d, "4"), tf.sigmoid)
        adam_g, adam_d = (Adam(net.trained, 2e-4, 0.5) for net in (net_g, net_d))
        return gan_step(net_g, net_d, adam_g.apply, adam_d.apply, net_g.trained, net_d.trained)

    def idiom(self) -> Callable[..., Mapping[str, Any]]:
        keras = tf.keras.layers

        def norm() -> Any:
            """Return a layer that normalizes."""
            return keras.BatchNormalization(momentum=0.9, epsilon=0.8)

        def bend() -> Any:
            """Return a rectifier."""
            return keras.LeakyReLU(negative_slope=0.2)

        up = [128, bend(), 256, norm(), bend(), 512, norm(), bend(), 784, keras.Activation("tanh")]
        down = [512, bend(), 256, bend(), 1, keras.Activation("sigmoid")]
        made_g = keras_stack(up, 100, self.states["generator"])
        made_d = keras_stack(down, 784, self.states["discriminator"])
        adam_g, adam_d = keras_adam(2e-4, 0.5, 0.999), keras_adam(2e-4, 0.5, 0.999)
        trained = made_g.trainable_variables, made_d.trainable_variables
        adam_g.build(trained[0])
        adam_d.build(trained[1])
        return gan_step(
            lambda z: made_g(z, training=True),
            lambda x: made_d(x, training=True),
            lambda gradients: adam_g.apply(gradients, trained[0]),
            lambda gradients: adam_d.apply(gradients, trained[1]),
            *map(plain, trained),
        )


def gan_step(
    net_g: Any, net_d: Any, apply_g: Any, apply_d: Any, weights_g: Any, weights_d: Any
) -> Callable[..., Mapping[str, Any]]:
    """Return DCGAN's order of a step."""

    def judge(scores: tf.Tensor, target: float) -> tf.Tensor:
        """Return the binary cross-entropy of probabilities."""
        scores = tf.clip_by_value(scores, 1e-7, 1 - 1e-7)
        return -tf.reduce_mean(tf.math.log(scores) if target else tf.math.log(1 - scores))

    def step(image: tf.Tensor, z: tf.Tensor) -> Mapping[str, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape_g:
            tape_g.watch(weights_g)
            fake = net_g(z)
            with tf.GradientTape(watch_accessed_variables=False) as tape_d:
                tape_d.watch(weights_d)
                d_loss = judge(net_d(image), 1.0) + judge(net_d(tf.stop_gradient(fake)), 0.0)
            apply_d(tape_d.gradient(d_loss, weights_d))
            g_loss = judge(net_d(fake), 1.0)
        apply_g(tape_g.gradient(g_loss, weights_g))
        return {"d_loss": d_loss, "g_loss": g_loss}

    return step


class AveragedMlp(Workload):
    """A small classifier, batch 16, with clipped gradients and an average of its weights."""

    name = "averaged-mlp"

    @staticmethod
    def batch(generator: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": normal(generator, 16, 32), "label": generator.integers(0, 10, 16)}

    def expert(self) -> Callable[..., Mapping[str, Any]]:
        state = self.states["classifier"]
        net = Net(Dense(state, "0"), tf.nn.relu, Dense(state, "2"), tf.nn.relu, Dense(state, "4"))
        adam = Adam(net.trained, 1e-3)
        return classifier_step(net, adam.apply, net.trained)

    def idiom(self) -> Callable[..., Mapping[str, Any]]:
        keras = tf.keras.layers
        layers = [64, keras.Activation("relu"), 64, keras.Activation("relu"), 10]
        model, adam = keras_stack(layers, 32, self.states["classifier"]), keras_adam(1e-3)
        trained = model.trainable_variables
        adam.build(trained)
        return classifier_step(model, lambda gradients: adam.apply(gradients, trained), plain(trained))


def classifier_step(net: Any, apply: Any, weights: Any) -> Callable[..., Mapping[str, Any]]:
    """Return a step with clipped gradients, and an average of the weights."""
    averages = [tf.Variable(tf.convert_to_tensor(each)) for each in weights]

    def step(x: tf.Tensor, label: tf.Tensor) -> Mapping[str, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(label, net(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, weights)
        factor = tf.minimum(1.0, 1.0 / (tf.linalg.global_norm(gradients) + 1e-6))
        apply([each * factor for each in gradients])
        for average, weight in zip(averages, weights, strict=True):
            average.assign_sub(0.001 * (average - weight))
        return {"loss": loss}

    return step


class Byol(Workload):
    """BYOL on vectors, batch 128: two views, BatchNorm in all nets, a target that follows the encoder."""

    name = "byol"

    @staticmethod
    def batch(generator: np.random.Generator) -> dict[str, np.ndarray]:
        return {name: normal(generator, 128, 128) for name in ("one", "two")}

    def expert(self) -> Callable[..., Mapping[str, Any]]:
        def encode(state: State) -> Net:
            """Return an encoder."""
            first, second = BatchNorm(state, "1"), BatchNorm(state, "4")
            return Net(Dense(state, "0"), first, tf.nn.relu, Dense(state, "3"), second, tf.nn.relu, Dense(state, "6"))

        encoder, target, state = encode(self.states["encoder"]), encode(self.states["target"]), self.states["predictor"]
        predictor = Net(Dense(state, "0"), BatchNorm(state, "1"), tf.nn.relu, Dense(state, "3"))
        weights = [*encoder.trained, *predictor.trained]
        adam = Adam(weights, 3e-4)
        return byol_step(encoder, predictor, target, adam.apply, weights, (encoder.trained, target.trained))

    def idiom(self) -> Callable[..., Mapping[str, Any]]:
        def make(sizes: Sequence[Any], width: int, model: str) -> Any:
            """Return a model, a layer that normalizes and a rectifier behind every layer but the last."""
            *inner, last = sizes
            layers = [
                each
                for size in inner
                for each in (
                    size,
                    tf.keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5),
                    tf.keras.layers.Activation("relu"),
                )
            ]
            return keras_stack([*layers, last], width, self.states[model])

        encoder, target = make([256, 256, 64], 128, "encoder"), make([256, 256, 64], 128, "target")
        predictor, adam = make([128, 64], 64, "predictor"), keras_adam(3e-4)
        weights = [*encoder.trainable_variables, *predictor.trainable_variables]
        adam.build(weights)
        nets = [lambda x, net=net: net(x, training=True) for net in (encoder, predictor, target)]
        pairs = plain(encoder.trainable_variables), plain(target.trainable_variables)
        return byol_step(*nets, lambda gradients: adam.apply(gradients, weights), plain(weights), pairs)


def byol_step(
    encoder: Any, predictor: Any, target: Any, apply: Any, weights: Any, pairs: Any
) -> Callable[..., Mapping[str, Any]]:
    """Return a step of BYOL."""

    def apart(online: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        """Return twice the cosine distance."""
        both = tf.math.l2_normalize(online, -1) * tf.math.l2_normalize(other, -1)
        return 2 * tf.reduce_mean(1 - tf.reduce_sum(both, -1))

    def step(one: tf.Tensor, two: tf.Tensor) -> Mapping[str, Any]:
        target_1, target_2 = target(one), target(two)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            code_1, code_2 = encoder(one), encoder(two)
            loss = apart(predictor(code_1), target_2) + apart(predictor(code_2), target_1)
        apply(tape.gradient(loss, weights))
        for followed, follower in zip(*pairs, strict=True):
            follower.assign_sub(0.01 * (follower - followed))
        return {"loss": loss}

    return step


WORKLOADS: tuple[type[Workload], ...] = (MlpGan, AveragedMlp, Byol)

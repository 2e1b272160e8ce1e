"""What users of TensorFlow bring along: an optimizer that puts weights back within limits."""

from __future__ import annotations

import keras
import tensorflow as tf


class Clamped(keras.optimizers.Optimizer):
    """Plain descent, and afterwards every weight is put back within limits."""

    def __init__(self, learning_rate: float, limit: float) -> None:
        super().__init__(learning_rate)
        self.rate, self.limit = learning_rate, limit  # Keras itself keeps the rate in float32

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Write one parameter, and clamp it."""
        variable.assign(tf.clip_by_value(variable - self.rate * gradient, -self.limit, self.limit))

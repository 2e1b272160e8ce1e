"""What the processes of these tests have imported before they begin, where they run TensorFlow."""

from __future__ import annotations

import matplotlib.backends.backend_agg
import matplotlib.figure
import safetensors.numpy
import tensorflow

import compiler
import runtime.backends.tensorflow.backend
import runtime.cli
import runtime.step
import runtime.train.run
import tests.suite.warm

__all__ = ["compiler", "matplotlib", "runtime", "safetensors", "tensorflow", "tests"]

"""What timing steps needs of TensorFlow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from compiler.ir.program import InputDecl
from runtime.backends.tensorflow.devices import choose_device, find_title
from runtime.backends.tensorflow.tensors import target_dtype, to_numpy, to_tensor
from runtime.bench.meter import Machine


class TensorFlowMeter:
    """TensorFlow's side of a measurement on one device; ``threads`` None leaves their number as it is."""

    def __init__(self, device: str, threads: int | None) -> None:
        if threads is not None:  # before devices are asked for: that starts TensorFlow
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        self.device = choose_device(device)

    def describe(self) -> Machine:
        """Return facts about the machine."""
        return Machine(
            framework=f"tensorflow {tf.__version__}",
            device=self.device,
            title="" if self.device == "cpu" else find_title(self.device),
            threads=tf.config.threading.get_intra_op_parallelism_threads(),
        )

    def place(self, value: object, declared: InputDecl) -> tf.Tensor:
        """Return an input as a tensor on the device."""
        return to_tensor(value, self.device, target_dtype(declared, tf.float32))

    def copy(self, models: Mapping[str, Any]) -> dict[str, object]:
        """Return copies of models."""
        with tf.device(self.device):
            return copy.deepcopy(dict(models))

    def array(self, value: object) -> npt.NDArray[np.generic] | None:
        """Return a copy of a tensor, array or number on the host."""
        if isinstance(value, (tf.Tensor, tf.Variable)):
            return to_numpy(value)
        return np.array(value) if isinstance(value, (bool, int, float, np.ndarray, np.generic)) else None

    def wait(self, result: object) -> None:
        """Wait for the tensors that a step has returned."""
        for value in result.values() if isinstance(result, Mapping) else (result,):
            if isinstance(value, (tf.Tensor, tf.Variable)):
                value.numpy()

    def peak(self, run: Callable[[], object]) -> int | None:
        """Return None: the memory that TensorFlow takes of a device is not that of one step."""
        return None

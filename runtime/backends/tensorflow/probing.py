"""Probe TensorFlow: its devices, each tried with a small product."""

from __future__ import annotations

import tensorflow as tf

from runtime.backends.tensorflow.compat import is_supported
from runtime.backends.tensorflow.devices import choose_device, find_devices
from runtime.probe import DeviceProbe, Probe
from runtime.problems import problem


def probe_tensorflow() -> Probe:
    """Return the version of TensorFlow and what each of its devices can do; raise SpecError (GS217) if it is old."""
    if not is_supported():
        raise problem("GS217", "TensorFlow is too old", help="pip install 'stepgraph[tensorflow]'")
    devices = tuple(_probe_device(name) for name in reversed(find_devices()))
    return Probe(version=tf.__version__, default=choose_device("auto"), devices=devices)


def _probe_device(name: str) -> DeviceProbe:
    """Return what a device is and can do; what goes wrong there is told, not raised."""
    try:
        _multiply(name, tf.float32)
        return DeviceProbe(name=name, title=_find_title(name), bfloat16=_computes(name, tf.bfloat16))
    except (RuntimeError, tf.errors.OpError) as error:
        return DeviceProbe(name=name, title="", trouble=str(error).splitlines()[0])


def _multiply(device: str, dtype: tf.DType) -> None:
    """Raise RuntimeError where a device does not compute a product in a type."""
    with tf.device(device):
        ones = tf.ones((8, 8), dtype)
        found = float(tf.reduce_sum(tf.matmul(ones, ones)))
    if found != 512:
        raise RuntimeError(f"a product of ones gave {found} instead of 512")


def _computes(device: str, dtype: tf.DType) -> bool:
    try:
        _multiply(device, dtype)
    except (RuntimeError, tf.errors.OpError):
        return False
    return True


def _find_title(name: str) -> str:
    """Return what a device is called, or how many threads an operation takes on the host."""
    if name == "cpu":
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        return f"{threads} thread{'s' if threads != 1 else ''}" if threads else "a thread per core"
    device = tf.config.list_physical_devices("GPU")[int(name.partition(":")[2])]
    return str(tf.config.experimental.get_device_details(device).get("device_name", "GPU"))

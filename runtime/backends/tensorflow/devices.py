"""Devices: which one a step runs on."""

from __future__ import annotations

import functools
import re
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.compat import is_supported
from runtime.engine import setting
from runtime.probe import DeviceProbe, Probe
from runtime.problems import problem

BEST_FIRST = ("gpu", "cpu")
_DEVICE = re.compile(r"^(cpu|gpu|cuda)(?::(\d+))?$")


def choose_device(request: str) -> str:
    """Return the device of a name, the best one for ``auto``: ``gpu:0``, ``cpu``; ``cuda`` is another word for gpu.

    Raises SpecError: GS207 where it is not available.
    """
    if request == "auto":
        return find_devices()[0]
    match = _DEVICE.match(request.lower())
    if match is None:
        raise problem("GS207", f"{request!r} is not a device", help=f"choose one of auto, {', '.join(BEST_FIRST)}")
    kind, number = match.groups()
    name = "cpu" if kind == "cpu" and int(number or 0) == 0 else f"{kind.replace('cuda', 'gpu')}:{number or 0}"
    if name not in find_devices():
        here = ", ".join(find_devices())
        help = f"this machine and this build of TensorFlow have {here}; `auto` takes the first of them"
        raise problem("GS207", f"device {request!r} is not available", help=help)
    return name


def choose_strategy(request: str, *, is_alone: bool) -> tf.distribute.Strategy | None:
    """Return the strategy that runs a replica on each device of a kind on this machine; None where there is one.

    ``request``: the name of a device; with a number there is only one. ``is_alone``: one replica is to run.
    Raises SpecError (GS257) where this process is one of several that tf.distribute knows of.
    """
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    count = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    if count > 1:
        message = f"TF_CONFIG names {count} workers, and the step is built outside of the scope of their strategy"
        help = "build inside `with tf.distribute.MultiWorkerMirroredStrategy().scope():`"
        raise problem("GS257", message, help=help)
    found = [each.name for each in tf.config.list_logical_devices(choose_device(request).partition(":")[0].upper())]
    return None if is_alone or ":" in request or len(found) < 2 else make_strategy(tuple(found))


@functools.cache
def make_strategy(devices: tuple[str, ...]) -> tf.distribute.Strategy:
    """Return the strategy over some devices, made once: the collectives of two would have the same keys."""
    return tf.distribute.MirroredStrategy(list(devices))


def find_devices() -> tuple[str, ...]:
    """Return the devices of this machine that this build of TensorFlow can use, the best first."""
    count = len(tf.config.list_physical_devices("GPU"))
    return (*(f"gpu:{index}" for index in range(count)), "cpu")


def probe_tensorflow() -> Probe:
    """Return the version of TensorFlow and what each of its devices can do; raise SpecError (GS217) if it is old."""
    if not is_supported():
        raise problem("GS217", "TensorFlow is too old", help="pip install 'stepgraph[tensorflow]'")
    devices: list[DeviceProbe] = []
    for name in reversed(find_devices()):
        try:
            _multiply(name, tf.float32)
            found = DeviceProbe(name=name, title=find_title(name), bfloat16=_computes(name, tf.bfloat16))
        except (RuntimeError, tf.errors.OpError) as error:
            found = DeviceProbe(name=name, title="", trouble=str(error).splitlines()[0])
        devices.append(found)
    return Probe(version=tf.__version__, default=choose_device("auto"), devices=tuple(devices))


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


def find_title(name: str) -> str:
    """Return the name of a device, or how many threads an operation uses on the host."""
    if name == "cpu":
        threads = tf.config.threading.get_intra_op_parallelism_threads()
        return f"{threads} thread{'s' if threads != 1 else ''}" if threads else "a thread per core"
    device = tf.config.list_physical_devices("GPU")[int(name.partition(":")[2])]
    return str(tf.config.experimental.get_device_details(device).get("device_name", "GPU"))


Setting: TypeAlias = setting.Setting[str, tf.DType, Any]
"""Where and how a plan is built."""

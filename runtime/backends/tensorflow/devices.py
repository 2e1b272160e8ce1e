"""Devices: which one a step runs on."""

from __future__ import annotations

import re

import tensorflow as tf

from runtime.problems import problem

BEST_FIRST = ("gpu", "cpu")
_DEVICE = re.compile(r"^(cpu|gpu|cuda)(?::(\d+))?$")


def choose_device(wish: str) -> str:
    """Return the wished device, for ``auto`` the best there is: ``gpu:0``, ``cpu``; ``cuda`` is another word for gpu.

    Raises SpecError: GS207 where it is not available.
    """
    if wish == "auto":
        return find_devices()[0]
    match = _DEVICE.match(wish.lower())
    if match is None:
        raise problem("GS207", f"{wish!r} is no device", help=f"choose one of auto, {', '.join(BEST_FIRST)}")
    kind, number = match.groups()
    name = "cpu" if kind == "cpu" and int(number or 0) == 0 else f"{kind.replace('cuda', 'gpu')}:{number or 0}"
    if name not in find_devices():
        here = ", ".join(find_devices())
        help = f"this machine and this build of TensorFlow have {here}; `auto` takes the first of them"
        raise problem("GS207", f"device {wish!r} is not available", help=help)
    return name


def find_devices() -> tuple[str, ...]:
    """Return the devices of this machine that this build of TensorFlow can use, the best first."""
    count = len(tf.config.list_physical_devices("GPU"))
    return (*(f"gpu:{index}" for index in range(count)), "cpu")

"""The bundled handwritten digits: 1,797 images of 8 x 8, with a fixed split into training and test samples."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from graphspec.suggestions import closest
from runtime.data.place import Place
from runtime.data.stored import Stored, store

_WHITE = 16.0
"""The value of full ink in the file."""
_SPLITS = ("train", "test", "all")
_ARGS = ("range", "flatten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``args`` of the source: the numbers that blank paper and full ink become, and whether an image is one row."""

    low: float = -1.0
    high: float = 1.0
    flatten: bool = False


def read_digits(place: Place) -> Stored:
    """Return what the inputs name of ``image`` float32 [n, 1, 8, 8] (or [n, 64]) and ``label`` int64 [n].

    Raises SpecError: GS229 wrong ``split`` or ``args``, and what :func:`store` raises.
    """
    options = _read_options(place)
    split = _read_split(place)
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        image, label, is_test = held["image"], held["label"], held["is_test"]
    chosen = slice(None) if split == "all" else is_test == (split == "test")
    scaled = options.low + image[chosen] * ((options.high - options.low) / _WHITE)
    shape = (-1, 64) if options.flatten else (-1, 1, 8, 8)
    offered = {"image": scaled.astype(np.float32).reshape(shape), "label": label[chosen].astype(np.int64)}
    return store(offered, lambda name: offered[name], place)


def _read_split(place: Place) -> str:
    """Return the written split; without one, ``data.train`` is the training part and every other set the test part."""
    split = place.declared.split or ("train" if place.role == "train" else "test")
    if split not in _SPLITS:
        raise place.problem("GS229", f"`split` is one of {', '.join(_SPLITS)}, found {split!r}", "split")
    return split


def _read_options(place: Place) -> Options:
    args = place.declared.args
    for name in args:
        if name not in _ARGS:
            near = closest(name, _ARGS, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise place.problem("GS229", f"`digits` takes no argument {name!r}{meant}", "args", name)
    flatten = args.get("flatten", False)
    if not isinstance(flatten, bool):
        raise place.problem("GS229", f"`flatten` is true or false, found {flatten!r}", "args", "flatten")
    low, high = _read_range(args.get("range", [-1, 1]), place)
    return Options(low=low, high=high, flatten=flatten)


def _read_range(value: object, place: Place) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high] if low < high:
            return float(low), float(high)
        case _:
            message = f"`range` is two numbers, the smaller one first, such as [-1, 1]; found {value!r}"
            raise place.problem("GS229", message, "args", "range")

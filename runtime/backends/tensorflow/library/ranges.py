"""Ranges: what the numbers of a tensor are like, in a line that a report can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from runtime.support.findings import note_of, share_text, statistics_text


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in a value: itself, or those of a set of gradients, where some may be missing."""
    if isinstance(value, (tf.Tensor, tf.Variable)):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


def numbers_of(tensor: Any) -> Any:
    """Return the numbers of a tensor in one row, in double precision; those of complex ones are their sizes."""
    array = np.ravel(tensor.numpy())
    return np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)


def fault_of(value: Any) -> str:
    """Return ``nan`` where a value holds one, else ``inf`` where it holds one (of either sign), else nothing."""
    faults = {find_fault(tensor) for tensor in tensors_in(value)}
    return next((fault for fault in ("nan", "inf") if fault in faults), "")


def find_fault(tensor: Any) -> str:
    """Return ``nan``, ``inf`` or nothing for one tensor; whole numbers are always finite."""
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return ""
    numbers = numbers_of(tensor)
    if np.isfinite(numbers).all():
        return ""
    return "nan" if np.isnan(numbers).any() else "inf"


def first_row(value: Any) -> str:
    """Return where along the first axis a tensor is not finite for the first time; nothing for a single number."""
    tensor = next(tensors_in(value))
    if not tensor.shape.rank:
        return ""
    rows = ~np.isfinite(numbers_of(tensor)).reshape(tensor.shape[0], -1).all(axis=1)
    return f", first in row {int(np.argmax(rows))}"


def range_of(name: str, value: Any) -> str:
    """Return ``image: float32 [8, 4], min 0, max 1, mean 0.31, 2 of 32 nan (6.2 %)``; statistics are of finite numbers.

    Numbers of a complex value are taken by their size. A set of tensors is described as one.
    """
    parts = list(tensors_in(value))
    if not parts:
        return f"{name}: {type(value).__name__}"
    is_one = not isinstance(value, (list, tuple))
    extent = f"{list(parts[0].shape)}" if is_one else f"in {len(parts)} tensors"
    numbers = np.concatenate([numbers_of(each) for each in parts])
    return ", ".join((f"{name}: {parts[0].dtype.name} {extent}", *statistics_of(numbers), *shares_of(numbers)))


def statistics_of(numbers: Any) -> Iterator[str]:
    """Yield minimum, maximum and mean of what is finite."""
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        yield statistics_text(finite.size, float(finite.min()), float(finite.max()), float(finite.mean()))


def shares_of(numbers: Any) -> Iterator[str]:
    """Yield how many of some numbers are nan or inf, where some are."""
    for fault, found in (("nan", np.isnan(numbers)), ("inf", np.isinf(numbers))):
        count = int(found.sum())
        if count:
            yield str(float(numbers[0])) if numbers.size == 1 else share_text(fault, count, numbers.size)


def ranges_of(title: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one note with a line per value under a title; none where there are no values."""
    return note_of(title, [range_of(name, value) for name, value in values.items()])

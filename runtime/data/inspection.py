"""Inspection: every batch looked through for numbers that are not finite and labels out of range, before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.plan.plan import Plan
from graphspec.diagnostics import SpecError
from runtime.data.arrays import Array, Batch
from runtime.data.labels import Label, find_labels
from runtime.data.place import Place

_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """Looks through the batches of one set; values on a device, or of a type that numpy lacks, are left as they are."""

    place: Place
    floats: tuple[str, ...]
    """Inputs whose values must be finite."""
    labels: tuple[Label, ...]
    """Uses whose number of classes is known."""
    notes: tuple[str, ...]
    """What is looked for, and what cannot be."""

    @classmethod
    def of(cls, plan: Plan, role: str = "train", dataset: str | None = None) -> Inspector:
        """Return the inspector of a plan's inputs; ``plan`` is best that of the built step, which knows most sizes."""
        floats = tuple(name for name, declared in plan.spec.inputs.items() if declared.dtype in _FLOATS)
        labels = find_labels(plan)
        return cls(
            place=Place(spec=plan.spec, role=role, dataset=dataset),
            floats=floats,
            labels=tuple(label for label in labels if label.count is not None),
            notes=tuple(_describe(floats, labels)),
        )

    def inspect(self, batch: Batch, number: int) -> None:
        """Look through the batch of this number, from 1.

        Raises SpecError with every problem: GS250 values that are not finite, GS251 labels out of range.
        """
        errors = (*self._find_not_finite(batch, number), *self._find_out_of_range(batch, number))
        if errors:
            raise SpecError((each for error in errors for each in error.diagnostics), self.place.spec.texts())

    def _find_not_finite(self, batch: Batch, number: int) -> Iterator[SpecError]:
        for name in self.floats:
            array = _read(batch, name)
            if array is None or array.dtype.kind != "f":
                continue
            finite = np.isfinite(array)
            if not finite.all():
                where = _find_first(~finite)
                count = _count(int(array.size - np.count_nonzero(finite)), "value")
                message = f"batch {number}: input {name!r} has {count} not finite: {array[where]} at {_show(where)}"
                help = "mend the data: one such value makes all weights that it reaches NaN"
                yield self.place.problem("GS250", message, help=help)

    def _find_out_of_range(self, batch: Batch, number: int) -> Iterator[SpecError]:
        for label in self.labels:
            array = _read(batch, label.input)
            if array is None or label.count is None or array.dtype.kind not in "iu" or array.size == 0:
                continue
            if array.min() < 0 or array.max() >= label.count:
                yield self._refuse(label, label.count, array, number)

    def _refuse(self, label: Label, classes: int, array: Array, number: int) -> SpecError:
        outside = np.less(array, 0) | np.greater_equal(array, classes)
        where = _find_first(outside)
        count = _count(int(np.count_nonzero(outside)), "value")
        message = f"batch {number}: input {label.input!r} has {count} outside 0 to {classes - 1}: "
        message += f"{array[where]} at {_show(where)}"
        help = "labels count from 0; mend the data, or make room for more classes"
        return self.place.problem("GS251", message, notes=(f"it is {label.use}",), help=help)


def _read(batch: Batch, name: str) -> Array | None:
    """Return an input as an array; None where it is missing, on a device, or of a type that numpy lacks."""
    try:
        array: Array = np.asarray(batch.get(name))
    except (TypeError, ValueError, RuntimeError):
        return None
    return array


def _find_first(wrong: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the coordinates of the first that is wrong."""
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def _show(where: tuple[int, ...]) -> str:
    """Return coordinates as a message says them: the row is the sample of the batch, from 0."""
    row, *rest = where or (0,)
    return f"row {row}" + (f", {rest}" if rest else "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe(floats: tuple[str, ...], labels: tuple[Label, ...]) -> Iterator[str]:
    """Yield what every input is looked through for."""
    if floats:
        yield f"check_data: finite values in {', '.join(floats)}"
    for label in labels:
        if label.count is None:
            yield f"check_data: {label.input} is {label.use}; how many classes there are is not known, so not checked"
        else:
            yield f"check_data: 0 to {label.count - 1} in {label.input}, {label.use}"

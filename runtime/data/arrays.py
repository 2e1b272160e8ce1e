"""Arrays made to fit the inputs of a spec: looked up by name, and converted where no number changes its meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graphspec.diagnostics import SpecError
from graphspec.inputs import InputSpec
from graphspec.suggestions import closest
from runtime.data.place import Place

Array: TypeAlias = npt.NDArray[np.generic]
Batch: TypeAlias = Mapping[str, object]
"""Input name -> array; a user's own source may also give tensors of the backend."""


def column_names(place: Place) -> Mapping[str, str]:
    """Return, for every input the spec declares, the source's name for it."""
    spec = place.spec
    columns = spec.data[place.role].columns
    for name in columns:
        if name not in spec.inputs:
            near = closest(name, spec.inputs, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise place.problem(
                "GS223", f"`columns` names the input {name!r}, which is not declared{meant}", "columns", name
            )
    return {name: columns.get(name, name) for name in spec.inputs}


def missing_column(place: Place, name: str, column: str, offered: Iterable[str]) -> SpecError:
    """Return the error of an input that the source does not offer."""
    names = sorted(offered)
    near = closest(column, names, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    message = f"the source has no {column!r} for the input {name!r}{meant}"
    notes = (f"it offers: {', '.join(names) or 'nothing'}",)
    return place.problem("GS223", message, notes=notes, help=f"name it with `columns: {{{name}: ...}}`")


def fit(array: Array, declared: InputSpec, name: str, place: Place) -> Array:
    """Return the array with the declared dtype; raise GS228 where shape or dtype cannot be the declared ones."""
    _check_shape(array, declared, name, place)
    if declared.dtype == "bfloat16":
        return array  # numpy has no such type: the backend converts
    wanted = np.dtype(declared.dtype)
    if array.dtype == wanted:
        return array
    if not _is_convertible(array, wanted):
        message = f"the source gives {name!r} as {array.dtype}, the spec declares {declared.dtype}"
        raise place.problem("GS228", message, help="change `dtype` of the input, or convert the data")
    return array.astype(wanted)


def _is_convertible(array: Array, wanted: np.dtype[np.generic]) -> bool:
    """Tell whether whole numbers fit into another type of whole numbers; other conversions may only round."""
    if wanted.kind not in "iu" or array.dtype.kind not in "iu" or array.size == 0:
        return np.can_cast(array.dtype, wanted, "same_kind")
    limits = np.iinfo(str(wanted))
    return limits.min <= int(array.min()) and int(array.max()) <= limits.max


def _check_shape(array: Array, declared: InputSpec, name: str, place: Place) -> None:
    if declared.shape is None or _has_shape(array, declared.shape):
        return
    found = ", ".join(["batch", *map(str, array.shape[1:])])
    expected = ", ".join(map(str, declared.shape))
    is_image = place.source == "digits" and array.ndim == 4
    help = (
        "`args: {flatten: true}` gives rows of 64 numbers"
        if is_image
        else f"write `shape: [{found}]` for the input, or change the data"
    )
    raise place.problem("GS228", f"the source gives {name!r} as [{found}], the spec declares [{expected}]", help=help)


def _has_shape(array: Array, shape: Sequence[int | str]) -> bool:
    """Tell whether the sizes of one sample are the declared ones; the leading size is the batch's."""
    sizes = zip(shape[1:], array.shape[1:], strict=False)
    return len(shape) == array.ndim and all(isinstance(size, str) or size == found for size, found in sizes)

"""Arrays for the inputs of a spec: looked up by name, and converted where that does not change what a number means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphspec.analysis.evaluation import find_batch_inputs
from graphspec.declare.data import Columns
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import InputSpec
from graphspec.words import closest
from runtime.data.place import Place

Array: TypeAlias = npt.NDArray[np.generic]
Batch: TypeAlias = Mapping[str, object]
"""Input name -> array; a user's own source may also give tensors of the backend."""

T = TypeVar("T")


class MarkedBatch(dict[str, object]):
    """A batch with what its arrays do not say.

    ``dataset``: its set, where there are several training sets. ``rows``: how many rows all processes have of it, where
    these are the rows of one.
    """

    __slots__ = ("dataset", "rows")

    def __init__(self, batch: Batch, *, dataset: str | None = None, rows: int | None = None) -> None:
        super().__init__(batch)
        known = batch if isinstance(batch, MarkedBatch) else None
        self.dataset = known.dataset if dataset is None and known is not None else dataset
        self.rows = known.rows if rows is None and known is not None else rows


def dataset_of(batch: Batch) -> str | None:
    """Return the training set of a batch; None where there is only one."""
    return batch.dataset if isinstance(batch, MarkedBatch) else None


FORMS = "it must give samples by number (__len__ and __getitem__), batches (__iter__), or be a mapping of whole arrays"
"""The forms of a user's own source, for messages."""


@runtime_checkable
class Shaped(Protocol):
    """An array, or a tensor of a framework."""

    @property
    def shape(self) -> Sequence[int]:
        """Return its sizes."""
        ...


def count_rows(batch: Batch, spec: GraphSpec) -> int:
    """Return how many samples a batch has: the leading size of the inputs that are declared with `batch` there.

    Where none is, that of every input whose leading size is free. Of a batch that several processes take: how many all
    of them have.
    """
    if isinstance(batch, MarkedBatch) and batch.rows is not None:
        return batch.rows
    leading = {name: None if each.shape is None else next(iter(each.shape), 1) for name, each in spec.inputs.items()}
    named = [name for name in batch if leading.get(name) == "batch"]
    counts: list[int] = []
    for name in named or [name for name in batch if not isinstance(leading.get(name), int)]:
        value = batch[name]
        shape: Sequence[int] | None = getattr(value, "shape", None)
        if shape is not None:
            counts.append(next(iter(shape), 0))
        else:
            counts.append(len(value) if isinstance(value, Sized) else 0)
    return max(counts, default=0)


def select(offered: Mapping[str, object], place: Place) -> Batch:
    """Return the values of the spec's inputs; arrays are converted, tensors of a framework are left to the step."""
    chosen: dict[str, object] = {}
    for name, column in column_names(place).items():
        value = pick(column, name, offered, lambda column: offered[column], place)
        chosen[name] = (
            fit(cast("Array", value), place.spec.inputs[name], name, place) if isinstance(value, np.ndarray) else value
        )
    return chosen


def pick(columns: Columns, name: str, offered: Collection[str], read: Callable[[str], T], place: Place) -> T | Array:
    """Return the value of an input: a column, or several stacked along a new last axis.

    Raises SpecError: GS223 one is not offered, GS224 their shapes differ.
    """
    for column in (columns,) if isinstance(columns, str) else columns:
        if column not in offered:
            offers = sorted(offered)
            near = closest(column, offers, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            message = f"the source has no {column!r} for the input {name!r}{meant}"
            notes = (f"it offers: {', '.join(offers) or 'nothing'}",)
            raise place.problem("GS223", message, notes=notes, help=f"name it with `columns: {{{name}: ...}}`")
    if isinstance(columns, str):
        return read(columns)
    arrays = [np.asarray(read(column)) for column in columns]
    if len({array.shape for array in arrays}) > 1:
        shown = ", ".join(f"{column}: {list(array.shape)}" for column, array in zip(columns, arrays, strict=True))
        raise place.problem("GS224", f"the columns of {name!r} have different shapes ({shown})", "columns", name)
    return np.stack(arrays, axis=-1)


def as_mapping(value: object, place: Place) -> Mapping[str, object]:
    """Return a sample or a batch as a mapping; items of a tuple or a list are named by position.

    Raises SpecError: GS225 it is none of these, or `columns` names no positions: their order is never guessed.
    """
    if isinstance(value, Mapping):
        return cast("Mapping[str, object]", value)
    if not isinstance(value, (tuple, list)):
        message = f"the source gave an object of type {type(value).__name__!r}, expected a mapping of names to arrays"
        raise place.problem("GS225", message, help=FORMS)
    items = cast("Sequence[object]", value)
    columns = column_names(place)
    if not any(isinstance(each, str) and each.isdecimal() for each in columns.values()):
        message = f"the source gave a {type(items).__name__} of {len(items)}, and nothing says which inputs they are"
        positions = ", ".join(f"{name}: {index}" for index, name in enumerate(columns))
        raise place.problem("GS225", message, help=f"give their positions, as in `columns: {{{positions}}}`")
    return {str(index): each for index, each in enumerate(items)}


def column_names(place: Place) -> Mapping[str, Columns]:
    """Return, for every input that the batches must have, the source's name for it."""
    spec = place.spec
    columns = place.declared.columns
    return {name: columns.get(name, name) for name in find_batch_inputs(spec, place.role, place.dataset)}


def fit(array: Array, declared: InputSpec, name: str, place: Place) -> Array:
    """Return the array with the declared dtype; raise GS228 where shape or dtype cannot be the declared ones."""
    shape = declared.shape
    if shape is not None:
        sizes = zip(shape[1:], array.shape[1:], strict=False)  # those of one sample: the leading size is the batch's
        if len(shape) != array.ndim or any(not isinstance(size, str) and size != found for size, found in sizes):
            found = ", ".join(["batch", *map(str, array.shape[1:])])
            help = f"write `shape: [{found}]` for the input, or change the data"
            message = f"the source gives {name!r} as [{found}], the spec declares [{', '.join(map(str, shape))}]"
            raise place.problem("GS228", message, help=help)
    if declared.dtype == "bfloat16":
        return array  # numpy has no such type, so the backend converts
    wanted = np.dtype(declared.dtype)
    if array.dtype == wanted:
        return array
    if wanted.kind not in "iu" or array.dtype.kind not in "iu" or array.size == 0:
        fits = np.can_cast(array.dtype, wanted, "same_kind")  # such a conversion may only round
    else:
        limits = np.iinfo(str(wanted))
        fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
    if not fits:
        message = f"the source gives {name!r} as {array.dtype}, the spec declares {declared.dtype}"
        raise place.problem("GS228", message, help="change `dtype` of the input, or convert the data")
    return array.astype(wanted)

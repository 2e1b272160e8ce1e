"""The batches that steps are timed on: a few, read or drawn before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from runtime.bench.meter import Meter
from runtime.data.arrays import Batch, MarkedBatch, Shaped, dataset_of
from runtime.data.feed import AnyFeed
from runtime.engine.user_models import find_shapes
from runtime.problems import problem


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Batches of tensors on the device, in the order in which steps take them."""

    batches: Sequence[Batch]
    is_read: bool
    """They are of `data.train`; else they were made up."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the first batch, by input."""
        held = {name: value for name, value in self.batches[0].items() if isinstance(value, Shaped)}
        return {name: tuple(map(int, value.shape)) for name, value in held.items()}


def read_batches(feed: AnyFeed, count: int) -> list[Batch]:
    """Return the first batches of a feed; those of another size than the first of their data set are left out.

    Raises SpecError: GS220 there are none.
    """
    found: list[Batch] = []
    sizes: dict[str | None, int] = {}
    kept_in_epoch = True
    while len(found) < count:
        batch = feed.next()
        if batch is None:
            if not kept_in_epoch:
                break
            kept_in_epoch = False
            continue
        rows = feed.rows(batch)
        if sizes.setdefault(dataset_of(batch), rows) == rows:
            found.append(batch)
            kept_in_epoch = True
    if not found:
        raise problem("GS220", "`data.train` gives no batches", help="look at its source, and at `drop_last`")
    return found


def draw_batches(program: Program, spec: GraphSpec, rows: int, count: int, seed: int) -> list[Batch]:
    """Return batches of the declared shapes: uniform numbers of [0, 1), and zeros where they are whole.

    Raises SpecError: GS220 where a size other than `batch` is free, or the spec says no shape.
    """
    shapes = find_shapes(program, {"batch": rows})
    if shapes is None or program.datasets:
        unknown = [
            f"{each.name} [{'...' if each.shape is None else ', '.join(map(str, each.shape))}]"
            for each in program.inputs
            if each.shape is None or any(isinstance(size, str) and size != "batch" for size in each.shape)
        ]
        why = f"the sizes of {', '.join(unknown)} are not known" if unknown else "its ops distinguish data sets"
        help = f"add `data: {{train: ...}}`, or declare the sizes; only `batch` may be free, it is {rows} (`--rows`)"
        message = f"the spec {spec.name!r} has no `data.train`, and no batches can be made up: {why}"
        raise problem("GS220", message, span=spec.span("inputs", key=True), help=help, texts=spec.texts())
    random = np.random.default_rng(seed)

    def draw(name: str, dtype: str) -> object:
        """Return numbers for an input."""
        if dtype.startswith(("float", "bfloat")):
            return random.random(shapes[name], dtype=np.float32)
        return np.zeros(shapes[name], dtype=np.dtype(dtype))

    return [{each.name: draw(each.name, each.dtype) for each in program.inputs} for _ in range(count)]


def place_batches(batches: Sequence[Batch], program: Program, meter: Meter) -> list[Batch]:
    """Return batches of tensors on the device; each keeps the name of its data set."""
    placed: list[Batch] = []
    for batch in batches:
        held = {each.name: meter.place(batch[each.name], each) for each in program.inputs if each.name in batch}
        dataset = dataset_of(batch)
        placed.append(held if dataset is None else MarkedBatch(held, dataset=dataset))
    return placed

"""``curves.png``: the logged values of a run against its steps, values of one scale in one panel."""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.ir.program import Mode
from graphspec.declare.graph import GraphSpec
from runtime.checkpoints.disk import replace_file
from runtime.data.arrays import Batch, dataset_of
from runtime.folder import cannot_write
from runtime.problems import problem
from runtime.train.evaluate import Driven
from runtime.train.logs import Row

Pixels = npt.NDArray[np.uint8]
_TILES = 64
_TILE_SIZE = 48
"""Pixels that the longer side of an image should have at least, so that an 8 x 8 digit can be seen."""
_GAP = 2
_GROUND = 128
"""Grey, on which white pages and black ones both stand out."""


def is_picture(array: npt.NDArray[np.generic]) -> bool:
    """Return whether an array can be shown: [n, h, w] or [n, c, h, w] with 1 or 3 channels, and at least one image."""
    channels = array.shape[1] if array.ndim == 4 else 1
    return array.ndim in (3, 4) and channels in (1, 3) and array.size > 0 and array.dtype.kind in "biuf"


def grid(images: npt.NDArray[np.generic]) -> Pixels:
    """Return at most 64 images side by side as pixels [height, width, 3].

    Values lie in [-1, 1] if any is negative, else in [0, 1], or, for whole numbers, in [0, 255]; what lies outside is
    clipped, and NaN is drawn as the darkest value.
    """
    images = images[:_TILES]
    last = images[..., np.newaxis] if images.ndim == 3 else np.moveaxis(images, 1, -1)
    pixels = np.broadcast_to(last, (*last.shape[:3], 3))
    if pixels.dtype.kind in "iu":
        tiles = np.clip(pixels, 0, 255).astype(np.uint8)
    else:
        values = pixels.astype(np.float64)
        values = (values + 1) / 2 if np.nanmin(values, initial=0.0) < 0 else values
        tiles = np.rint(np.nan_to_num(np.clip(values, 0, 1), nan=0.0) * 255).astype(np.uint8)
    factor = max(1, math.ceil(_TILE_SIZE / max(tiles.shape[1:3])))
    tiles = tiles.repeat(factor, axis=1).repeat(factor, axis=2)
    count, height, width, _ = tiles.shape
    columns = find_columns(count)
    rows = math.ceil(count / columns)
    shape = (rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3)
    page = np.full(shape, _GROUND, dtype=np.uint8)
    for index, tile in enumerate(tiles):
        top = _GAP + index // columns * (height + _GAP)
        left = _GAP + index % columns * (width + _GAP)
        page[top : top + height, left : left + width] = tile
    return page


def find_columns(count: int) -> int:
    """Return how many images are in a row: as in a square, or up to twice that where all rows are then full."""
    square = math.ceil(math.sqrt(count))
    even = (columns for columns in range(square, 2 * square - 1) if count % columns == 0)
    return next(even, square)


def write_png(path: Path, pixels: Pixels) -> None:
    """Write pixels [height, width, 3] as a PNG file; raise SpecError (GS234) where that fails."""
    from PIL import Image  # as matplotlib, only where something is drawn

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="png")
    try:
        replace_file(path, content.getvalue())  # on a full disk the earlier picture stays
    except OSError as error:
        raise cannot_write(path, error) from error


_PER_PANEL = 6
_SAME_SCALE = 10.0
"""Values whose medians are within this factor of each other share a panel."""
_STEEP = 1000.0
"""A panel whose values span more than this factor gets a logarithmic axis."""

Points = Sequence[tuple[int, float]]


def draw_curves(rows: Sequence[Row], path: Path, *, title: str) -> bool:
    """Write the picture; return False, and write nothing, where fewer than two rows hold finite numbers."""
    curves = find_curves(rows)
    if max((len(points) for points in curves.values()), default=0) < 2:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = find_panels(curves)
    figure = Figure(figsize=(8, 1.2 + 2.6 * len(panels)), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    every = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, names in zip(every, panels, strict=True):
        for name in names:
            axes.plot(*zip(*curves[name], strict=True), label=name, linewidth=1.4)
        values = [value for name in names for _, value in curves[name]]
        if min(values) > 0 and max(values) / min(values) > _STEEP:
            axes.set_yscale("log")
        axes.set_ylabel(names[0] if len(names) == 1 else "value")
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize="small")
    every[0].set_title(title)
    every[-1].set_xlabel("step")
    canvas.draw()
    write_png(path, np.asarray(canvas.buffer_rgba(), dtype=np.uint8)[..., :3])
    return True


def find_curves(rows: Sequence[Row]) -> Mapping[str, Points]:
    """Return the finite points of each value, in the order in which the values were first seen."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for name, value in row.values.items():
            if math.isfinite(value):
                curves.setdefault(name, []).append((row.step, value))
    return curves


def find_panels(curves: Mapping[str, Points]) -> Sequence[Sequence[str]]:
    """Return groups of names whose typical sizes are similar, at most six to a group."""
    sizes = {name: statistics.median(abs(value) for _, value in points) for name, points in curves.items()}
    panels: list[list[str]] = []
    for name in curves:
        for panel in panels:
            low, high = sorted((sizes[panel[0]], sizes[name]))
            if len(panel) < _PER_PANEL and (low == high or (low > 0 and high / low <= _SAME_SCALE)):
                panel.append(name)
                break
        else:
            panels.append([name])
    return panels


@dataclass(slots=True, kw_only=True)
class ImageLogger:
    """Writes ``<value>_<step>.png`` every so many steps, and ``<value>.png`` as the last one.

    A value of a mode other than train is computed each time from the first batch of the run and from the same random
    numbers, so that pictures can be compared.
    """

    step: Driven
    spec: GraphSpec
    mode: Mode
    folder: Path
    every: int | None
    batch: Batch | None = None
    latest: object = None
    seen: bool = False
    fresh: bool = False
    """Training has returned the value since the last picture was written."""
    writes: bool = True
    """Whether this process writes the pictures: of several, all compute them and the first writes."""

    def follow(self, number: int, batch: Batch, outputs: Mapping[str, object]) -> None:
        """Record the batch and outputs of a step, and write a picture where one is due."""
        if self.batch is None:
            self.batch = batch
        if self.mode == "train" and self.value in outputs:
            self.latest, self.fresh = outputs[self.value], True
        if not self.seen:
            self.seen = (
                self._read_images() is not None
            )  # report a value that is not an image now, not at the end of the run
        if self.every is not None and number % self.every == 0:
            self.show_now(number)

    @property
    def value(self) -> str:
        """Return the name of the value that is shown."""
        return "" if self.spec.run.images is None else self.spec.run.images.value

    def show_now(self, number: int) -> None:
        """Write the picture of a step; raise SpecError (GS230) where the value cannot be shown as images."""
        self._write(f"{self.value}_{number}.png")

    def keep(self) -> None:
        """Write the last images of training before a checkpoint: a resumed run may not compute them again."""
        if self.mode == "train" and self.fresh:
            self.finish()

    def finish(self) -> Path | None:
        """Write the last picture under the value's own name; return its path, or None where nothing is there yet."""
        self.fresh = False
        return self._write(f"{self.value}.png")

    def _write(self, name: str) -> Path | None:
        array = self._read_images()
        if array is None:
            return None
        path = self.folder / name
        if self.writes:
            write_png(path, grid(array))
        return path

    def _read_images(self) -> npt.NDArray[np.generic] | None:
        """Return the present images; None where the value was not returned yet."""
        if self.mode != "train" and self.batch is not None:
            self.step.reset(self.mode)
            named = {} if dataset_of(self.batch) is None else {"dataset": dataset_of(self.batch)}
            self.latest = self.step(self.batch, mode=self.mode, **named).get(self.value)
        if self.latest is None:
            return None
        array = self.step.numpy(self.latest)
        if not is_picture(array):
            message = f"{self.value!r} has the shape {list(array.shape)}, which is not a row of images"
            help = "images are [n, height, width] or [n, channels, height, width] with 1 or 3 channels"
            span = self.spec.span("run", "images", "value")
            raise problem("GS230", message, span=span, help=help, texts=self.spec.texts())
        return array

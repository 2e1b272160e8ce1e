"""The image grids of a run: a value of the spec, written as a picture now and then and at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compiler.ir.instructions import Emit
from compiler.ir.program import Mode, Program
from graphspec.graph import GraphSpec
from graphspec.suggestions import closest
from runtime.data.arrays import Batch, dataset_of
from runtime.problems import problem
from runtime.runs.pictures import grid, is_picture, write_png


class Showable(Protocol):
    """What a gallery needs of a compiled step."""

    def __call__(self, batch: Batch, mode: str = "train", dataset: str | None = None) -> Mapping[str, object]:
        """Run a step and return its outputs."""
        ...

    def numpy(self, value: object) -> npt.NDArray[np.generic]:
        """Return an output as an array of the host."""
        ...

    def reset(self, mode: str = "eval") -> None:
        """Start a mode anew, so that it draws the same random numbers again."""
        ...


def find_image_mode(spec: GraphSpec, program: Program) -> Mode:
    """Return the mode whose outputs hold the value of ``run.images``; one that does not train comes first.

    Raises SpecError (GS230) where no mode returns it.
    """
    value = "" if spec.run.images is None else spec.run.images.value
    outputs = {mode.mode: find_outputs(program, mode.mode) for mode in program.modes}
    for mode in ("eval", "test", "infer", "train"):
        if value in outputs.get(mode, ()):
            return mode
    offered = sorted({name for names in outputs.values() for name in names})
    near = closest(value, offered, 1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    message = f"`run.images` shows {value!r}, which the step does not return{meant}"
    help = f"add {value!r} to `outputs`" if value in spec.ops else f"the outputs are: {', '.join(offered)}"
    raise problem("GS230", message, span=spec.span("run", "images", "value"), help=help, texts=spec.texts())


def find_outputs(program: Program, mode: Mode) -> tuple[str, ...]:
    """Return the names that the step can return in a mode, in the order of the program."""
    functions = program.mode(mode).functions
    emits = (item for function in functions for item in function.instructions if isinstance(item, Emit))
    return tuple(dict.fromkeys(name for emit in emits for name in emit.values))


@dataclass(slots=True, kw_only=True)
class Gallery:
    """Writes ``<value>_<step>.png`` every so many steps, and ``<value>.png`` as the last one.

    A value of a mode other than train is made each time from the first batch of the run and from the same random
    numbers, so that pictures compare.
    """

    step: Showable
    spec: GraphSpec
    mode: Mode
    folder: Path
    every: int | None
    batch: Batch | None = None
    latest: object = None
    seen: bool = False
    fresh: bool = False
    """Training has returned the value since the last picture was written."""

    def follow(self, number: int, batch: Batch, outputs: Mapping[str, object]) -> None:
        """Note what a step was given and returned, and write a picture where one is due."""
        if self.batch is None:
            self.batch = batch
        if self.mode == "train" and self.value in outputs:
            self.latest, self.fresh = outputs[self.value], True
        if not self.seen:
            self.seen = self._look() is not None  # a value that is no image is told at once, not at the end of the run
        if self.every is not None and number % self.every == 0:
            self.hang(number)

    @property
    def value(self) -> str:
        """Return the name of the value that is shown."""
        return "" if self.spec.run.images is None else self.spec.run.images.value

    def hang(self, number: int) -> None:
        """Write the picture of a step; raise SpecError (GS230) where the value cannot be shown as images."""
        self._write(f"{self.value}_{number}.png")

    def keep(self) -> None:
        """Write what training returned last before a checkpoint: a run that goes on may not be returned it again."""
        if self.mode == "train" and self.fresh:
            self.finish()

    def finish(self) -> Path | None:
        """Write the last picture under the value's own name; return its path, or None where nothing is there yet."""
        self.fresh = False
        return self._write(f"{self.value}.png")

    def _write(self, name: str) -> Path | None:
        array = self._look()
        if array is None:
            return None
        path = self.folder / name
        write_png(path, grid(array))
        return path

    def _look(self) -> npt.NDArray[np.generic] | None:
        """Return the images as they are now; None where the value was not returned yet."""
        if self.mode != "train" and self.batch is not None:
            self.step.reset(self.mode)
            told = {} if dataset_of(self.batch) is None else {"dataset": dataset_of(self.batch)}
            self.latest = self.step(self.batch, mode=self.mode, **told).get(self.value)
        if self.latest is None:
            return None
        array = self.step.numpy(self.latest)
        if not is_picture(array):
            raise self._not_images(array.shape)
        return array

    def _not_images(self, shape: tuple[int, ...]) -> Exception:
        message = f"{self.value!r} has the shape {list(shape)}, which is not a row of images"
        help = "images are [n, height, width] or [n, channels, height, width] with 1 or 3 channels"
        span = self.spec.span("run", "images", "value")
        return problem("GS230", message, span=span, help=help, texts=self.spec.texts())

"""``curves.png``: the logged values of a run against its steps, values of one scale in one panel."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from runtime.runs.metrics import Row
from runtime.runs.pictures import write_png

_PER_PANEL = 6
_SAME_SCALE = 10.0
"""Values whose medians are within this factor share a panel."""
_STEEP = 1000.0
"""A panel whose values span more than this factor gets a logarithmic axis."""

Points = Sequence[tuple[int, float]]


def draw_curves(rows: Sequence[Row], path: Path, *, title: str) -> bool:
    """Write the picture; return False, and write nothing, where fewer than two rows hold finite numbers."""
    curves = find_curves(rows)
    if max((len(points) for points in curves.values()), default=0) < 2:
        return False
    _draw(curves, find_panels(curves), path, title)
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
    """Return groups of names whose typical sizes are alike, at most six to a group."""
    sizes = {name: statistics.median(abs(value) for _, value in points) for name, points in curves.items()}
    panels: list[list[str]] = []
    for name in curves:
        near = (panel for panel in panels if len(panel) < _PER_PANEL and _is_alike(sizes[panel[0]], sizes[name]))
        panel = next(near, None)
        if panel is None:
            panels.append([name])
        else:
            panel.append(name)
    return panels


def _is_alike(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return low == high or (low > 0 and high / low <= _SAME_SCALE)


def _draw(curves: Mapping[str, Points], panels: Sequence[Sequence[str]], path: Path, title: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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

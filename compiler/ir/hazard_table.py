"""Hazard tables: what each backend's automatic differentiation keeps, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class HazardTable(Struct, frozen=True, kw_only=True):
    """``keeps_cells``: a pending gradient reads parameters and buffers themselves, not copies of them.

    ``holds_modes``: whether a call runs as in training is a state of the model, also where a gradient recomputes it.
    """

    backend: str
    keeps_cells: bool
    holds_modes: bool


TABLES: Mapping[str, HazardTable] = {
    table.backend: table
    for table in (
        # Autograd saves the very tensors a forward used; writing them in place changes, or breaks, the gradient.
        HazardTable(backend="torch", keeps_cells=True, holds_modes=True),
        # Tapes keep the values that were read; later assignments to a variable do not reach them.
        HazardTable(backend="tensorflow", keeps_cells=False, holds_modes=False),
    )
}

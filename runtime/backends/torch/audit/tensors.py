"""The tensors that outlive ops, found again by their storage: parameters, buffers, gradients."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

import torch

from runtime.audit.trace import Place


def key_of(tensor: torch.Tensor) -> int | None:
    """Return a number for the storage of a tensor; None where it has none."""
    try:
        return tensor.untyped_storage()._cdata
    except RuntimeError:
        return None


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor and the first after it; its strides are taken for dense."""
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()


def node_of(tensor: torch.Tensor) -> Any:
    """Return the node of a tensor in the graph; None where there is none, or where a view must not be asked."""
    try:
        return tensor.grad_fn if tensor.requires_grad else None
    except RuntimeError:
        return None


def find_tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among some arguments and in lists and dictionaries of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (each for each in value if isinstance(each, torch.Tensor))
        elif isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, torch.Tensor))


class Cell:
    """A tensor that outlives ops, its version, and who wrote it last."""

    kind: Literal["params", "buffers"]

    __slots__ = ("floating", "key", "kind", "model", "name", "number", "ref", "span", "version", "writes")

    def __init__(
        self, number: int, ref: weakref.ref[torch.Tensor], key: int, kind: Literal["params", "buffers"]
    ) -> None:
        tensor = ref()
        assert tensor is not None
        self.number, self.ref, self.kind = number, ref, kind
        self.key, self.span = key, span_of(tensor)
        self.floating = tensor.is_floating_point() or tensor.is_complex()
        self.version = 0
        self.writes: list[tuple[Place, str]] = []
        """Place and operation of the write that made each version, from the first."""
        self.model = self.name = ""


class Cells:
    """All of them, by object and by storage."""

    def __init__(self) -> None:
        self.all: list[Cell] = []
        self._by_object: dict[int, Cell] = {}
        self._by_key: dict[int, list[Cell]] = {}
        self.gradients: dict[int, Cell] = {}
        """By the storage of the gradient."""
        self.pending: dict[int, int] = {}
        """Cell -> how many backwards have added to its gradient since it was empty."""

    def known(self, tensor: torch.Tensor) -> Cell | None:
        """Return the cell that is exactly this object, if there is one."""
        cell = self._by_object.get(id(tensor))
        return cell if cell is not None and cell.ref() is tensor else None

    def add(self, tensor: torch.Tensor, kind: Literal["params", "buffers"] = "params") -> Cell | None:
        """Return the cell of a tensor, a new one if need be; of tied tensors it is one. None: it has no storage."""
        cell = self.known(tensor)
        if cell is not None:
            return cell
        key = key_of(tensor)
        if key is None:
            return None
        span = span_of(tensor)
        for other in self._by_key.get(key, ()):
            if other.span == span and other.ref() is not None:
                return other
        # The reference is the cell's: when the audit lets go of its cells, nothing is called back.
        number, owner = id(tensor), cast("weakref.ref[Cells]", weakref.ref(self))

        def forget(_: weakref.ref[torch.Tensor]) -> None:
            """Let the cells forget the tensor, if they are still there."""
            cells = owner()
            if cells is not None:
                cells.forget(number)

        cell = Cell(len(self.all), weakref.ref(tensor, forget), key, kind)
        self.all.append(cell)
        self._by_object[id(tensor)] = cell
        self._by_key.setdefault(key, []).append(cell)
        return cell

    def find(self, tensor: torch.Tensor) -> tuple[Cell, ...]:
        """Return the cells that a tensor shares memory with."""
        key = key_of(tensor)
        among = self._by_key.get(key, ()) if key is not None else ()
        if not among:
            return ()
        first, last = span_of(tensor)
        return tuple(cell for cell in among if cell.span[0] < last and first < cell.span[1])

    def move(self, cell: Cell, tensor: torch.Tensor) -> None:
        """Note that a tensor has another storage now (``.data = ...``)."""
        self._drop(cell)
        key = key_of(tensor)
        if key is not None:
            cell.key, cell.span = key, span_of(tensor)
            self._by_key.setdefault(key, []).append(cell)

    def track_gradient(self, cell: Cell, gradient: torch.Tensor) -> None:
        """Note where the gradient of a cell is."""
        key = key_of(gradient)
        if key is not None:
            self.gradients[key] = cell

    def gradient_cell(self, tensor: torch.Tensor) -> Cell | None:
        """Return the cell whose gradient a tensor is now, if it is one."""
        key = key_of(tensor)
        cell = self.gradients.get(key) if key is not None else None
        owner = cell.ref() if cell is not None else None
        if owner is None or owner.grad is None or key_of(owner.grad) != key:
            return None
        return cell

    def _drop(self, cell: Cell) -> None:
        among = self._by_key.get(cell.key, [])
        if cell in among:
            among.remove(cell)
        if not among:
            self._by_key.pop(cell.key, None)

    def forget(self, number: int) -> None:
        """Let go of a tensor that is gone, which had a number as an object."""
        cell = self._by_object.get(number)
        if cell is not None and cell.ref() is None:
            self._drop(cell)
            del self._by_object[number]

"""Saved tensors: which version of a tensor a backward reads, and whether it is the one that the forward saved."""

from __future__ import annotations

import re
from typing import Any

import torch

from runtime.audit.trace import Overwritten, Place, Read
from runtime.backends.torch.audit.log import Log
from runtime.backends.torch.audit.tensors import Cell, node_of, span_of

# A convolution keeps its weight even where no gradient needs it, as the norms do; autograd checks it nevertheless.
_KEEPING = ("Convolution", "BatchNorm", "LayerNorm", "GroupNorm")
_HINT = (
    " Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
    "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
_HINT_OF_ANOMALIES = (
    " Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in "
    "question was changed in there or anywhere later. Good luck!"
)


class _Saved:
    """A tensor that a forward saved. The graph is not held, only the value."""

    __slots__ = ("cell", "count", "function", "origin", "place", "value", "version")

    def __init__(
        self, value: torch.Tensor, cell: Cell | None, version: int, place: Place, function: int, origin: str
    ) -> None:
        self.value, self.cell, self.version, self.place = value, cell, version, place
        self.function, self.origin = function, origin
        self.count = None if value.is_inference() else value._version


class SavedTensors:
    """The two hooks of `torch.autograd.graph.saved_tensors_hooks`."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def pack(self, tensor: torch.Tensor) -> Any:
        """Save a tensor: its value, and which version of what it is."""
        if self._log.busy:
            return tensor.detach()
        value = tensor  # of a leaf autograd keeps the tensor itself, which `.data = ...` may give other memory
        if isinstance(tensor, torch.nn.Parameter):
            self._log.cells.add(tensor)
        elif not tensor.is_leaf:
            with self._log.quiet():
                # Detached, so that the graph does not hold itself; the counter of versions is shared.
                value = tensor.detach()
        cell, version = self._log.version_of(value)
        node, origin = node_of(tensor), ""
        if node is not None:
            is_view = tensor._base is not None
            made_by = re.sub(r"Backward[0-9]*$", "", node.name())
            origin = "output 0 of AsStrided" if is_view else f"output {tensor.output_nr} of {made_by}"
        return _Saved(value, cell, version, self._log.place(), self._log.function, origin)

    def unpack(self, saved: Any) -> torch.Tensor:
        """Give a saved tensor back; raise the error that autograd would have raised where it was overwritten."""
        if isinstance(saved, torch.Tensor):
            return saved
        value, cell = saved.value, saved.cell
        raised = saved.count is not None and value._version != saved.count
        log = self._log
        if log.running and not log.busy:
            if cell is not None:
                owner, version = log.version_of(value)
                now = version if owner is cell else saved.version  # a cell that has moved leaves its memory as it was
                self._note_read(saved, cell, now, raised)
            else:
                self._note_value(saved, raised)
        if raised:  # in the words of autograd's own error, which hooks of saved tensors turn off
            origin = f", which is {saved.origin}," if saved.origin else ""
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{value.type()} {list(value.shape)}]{origin} is at version {value._version}; expected version "
                f"{saved.count} instead.{_HINT_OF_ANOMALIES if torch.is_anomaly_enabled() else _HINT}"
            )
        return value

    def _note_value(self, saved: _Saved, raised: bool) -> None:
        """Note that a value is not what was saved; what a function does within itself is its own affair."""
        first, last = span_of(saved.value)
        writes = self._log.written.get(saved.value.untyped_storage()._cdata, ())[saved.version :]
        write = next(
            (
                each
                for each in writes
                if each.function != saved.function and each.span[0] < last and first < each.span[1]
            ),
            None,
        )
        if write is not None or raised:
            place, operation = (write.place, write.operation) if write is not None else (saved.place, "a write")
            self._log.running[-1].overwritten.append(
                Overwritten(place=saved.place, written=place, operation=operation, raised=raised)
            )

    def _note_read(self, saved: _Saved, cell: Cell, now: int, raised: bool) -> None:
        node = torch._C._current_autograd_node()
        flags = (getattr(node, "_saved_training", False), getattr(node, "_saved_train", False))
        if cell.kind == "buffers" and True in flags:
            return  # a norm in training mode saves its statistics, but does not read them
        is_kept_for_nothing = (
            node is not None
            and cell.kind == "params"
            and any(each in node.name() for each in _KEEPING)
            and bool(node.next_functions)
            and node.next_functions[0][0] is None
        )
        self._log.running[-1].reads.append(
            Read(
                tensor=cell.number,
                version=saved.version,
                now=now,
                place=saved.place,
                raised=raised,
                needed=not is_kept_for_nothing,
            )
        )

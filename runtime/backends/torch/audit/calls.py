"""Calls of PyTorch's functions: what values are made of, where their graph is cut, and who touches gradients."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from runtime.audit.trace import Backward, Cut, GradientChange, GradientRead, GradientUse, Place, Source, Update
from runtime.backends.torch.audit.copies import DIVIDING, MULTIPLYING, find_copy
from runtime.backends.torch.audit.kernel_accesses import Kernels
from runtime.backends.torch.audit.log import CutMark, Log
from runtime.backends.torch.audit.provenance import EMPTY, Tag
from runtime.backends.torch.audit.tensors import Cell, find_tensors, key_of, node_of
from runtime.backends.torch.audit.user_lines import find_function, is_foreign

PLACE = "stepgraph-place"
"""Under this key the nodes of a graph know the line that made them."""
ROOT = "stepgraph-root"
"""Under this key the node of a loss that had its backward has its :class:`Root`."""
REGRESSION = "stepgraph-regression"
"""Under this key the node of a distance has the nodes of its two sides, if both have one."""
_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_SKIPPED = (
    "_record_function",
    "_set_grad",
    "is_",
    "size",
    "dim",
    "numel",
    "__len__",
    "stride",
    "get_",
    "type",
    "__repr__",
)
_IN_PLACE = ("__setitem__", "__iadd__", "__imul__", "__isub__", "__itruediv__")
_DETACHING = ("detach", "detach_", "data.__get__")
# Their derivative is zero anyway, so that nothing is lost where a graph is cut before them.
_FLAT = ("sign", "sgn", "round", "floor", "ceil", "argmax", "argmin", "trunc")
_MOST_SOURCES = 4
_ADDING = ("add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__rsub__")
_KEEPING = (*_ADDING, "stack", "cat")
"""How a program sums or lists the losses of its steps."""
_LINEAR = (
    *_KEEPING, *MULTIPLYING, *DIVIDING, "neg", "__neg__", "mean", "sum", "view", "reshape", "flatten", "squeeze",
    "unsqueeze", "__getitem__", "to", "float", "double",
)  # fmt: skip
"""What leaves a constant term of a loss one: a square of a sum mixes it with the others, as that of a difference."""
_ROUNDING = 1e-6


class _Taken(NamedTuple):
    """A gradient that the user's code took: how many backwards had added to it by then."""

    ref: weakref.ref[torch.Tensor]
    cell: Cell
    count: int
    place: Place
    position: int
    """Among the events."""
    earlier: Place | None = None
    """Where the same tensor was taken before a backward of the same step wrote other numbers into it."""


class Calls(TorchFunctionMode):
    """Sees every call of a function or method of tensors, and every access to `.grad` and `.data`."""

    def __init__(self, log: Log, kernels: Kernels) -> None:
        super().__init__()
        self._log, self._kernels = log, kernels
        self._kinds: dict[Any, tuple[str, bool]] = {}
        self._taken: dict[int, _Taken] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, and note what it does to gradients and graphs."""
        kwargs = kwargs or {}
        self._log.function += 1
        name, is_in_place = self._kinds.get(func) or self._learn(func)
        log = self._log
        if log.busy or name == "" or log.stepping or name in ("backward", "grad"):
            return func(*args, **kwargs)
        match name:
            case "data.__set__":
                return self._set_data(func, args)
            case "grad.__set__":
                return self._set_gradient(func, args)
            case "grad.__get__":
                result = func(*args, **kwargs)
                if isinstance(result, torch.Tensor) and not log.running:
                    self._note_gradient(args[0], result, is_foreign(sys._getframe(1).f_code))
                return result
        if name in _DETACHING and args and isinstance(args[0], nn.Parameter):
            log.cells.add(args[0])
        for each in find_tensors(args) if self._taken else ():
            held = self._taken.get(id(each))
            if held is not None and held.ref() is each:
                self._note_use(held, log.place())
                # Whether two lists of the program hold it takes a search through all objects, so it is asked last.
                if held.earlier is not None and sum(type(one) is list for one in gc.get_referrers(each)) > 1:
                    self._taken[id(each)] = held._replace(earlier=None)
                    log.add(GradientUse(place=log.place(), tensor=held.cell.number, taken=held.earlier, listed=True))
        if is_in_place:
            self._note_sources(args, kwargs)
        result = func(*args, **kwargs)
        if is_in_place:
            log.sources.clear()
        if log.loose:
            self._follow_forwards(args, kwargs, result, is_in_place)
        self._follow(name, args, kwargs, result)
        if log.tape is not None:
            log.tape.called(name, args, kwargs, result)
        return result

    def _learn(self, func: Any) -> tuple[str, bool]:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            owner = getattr(getattr(func, "__self__", None), "__name__", "")
            found = (f"{owner}.{name}", False) if owner in ("grad", "data") else ("", False)
        elif name.startswith(_SKIPPED):
            found = ("", False)
        else:
            found = (name, (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE)
        self._kinds[func] = found
        return found

    def _set_data(self, func: Any, args: Sequence[Any]) -> Any:
        log, (tensor, value) = self._log, args
        cell = log.cells.add(tensor) if isinstance(tensor, nn.Parameter) else log.cells.known(tensor)
        sources = log.sources_of(value)
        result = func(*args)
        if cell is not None:
            log.cells.move(cell, tensor)
            log.sources[cell.key] = sources
            self._kernels.note_write(cell, ".data", log.place(), cell.key)
            log.sources.clear()
        return result

    # ------------------------------------------------------------ gradients

    def _set_gradient(self, func: Any, args: Sequence[Any]) -> Any:
        log, (tensor, value) = self._log, args
        sources = log.sources_of(value)
        held = self._taken.get(id(value))
        result = func(*args)
        cell = log.cells.add(tensor) if isinstance(tensor, torch.Tensor) and tensor.is_leaf else None
        if cell is None:
            return result
        place = log.place()
        if held is not None and held.ref() is value:
            self._note_use(held, place)
        log.cells.pending.pop(cell.number, None)
        if value is not None:
            log.cells.track_gradient(cell, value)
        change = "none" if value is None else "given"
        log.add(
            GradientChange(place=place, tensor=cell.number, change=change, function=find_function(), sources=sources)
        )
        return result

    def _note_gradient(self, tensor: Any, gradient: torch.Tensor, by_library: bool) -> None:
        """Note that somebody takes a gradient."""
        log = self._log
        cell = log.cells.known(tensor) if isinstance(tensor, torch.Tensor) else None
        if cell is None or by_library or log.calls:
            return
        place = log.place()
        count, before = log.cells.pending.get(cell.number, 0), self._taken.get(id(gradient))
        earlier = None
        if before is not None and before.ref() is gradient:
            since = log.events[before.position :]
            gains = (gain for each in since if isinstance(each, Backward) for gain in each.gains)
            is_stepped = any(isinstance(each, Update) for each in since)
            if not is_stepped and any(gain.tensor == cell.number for gain in gains):
                earlier = before.place
        self._taken[id(gradient)] = _Taken(weakref.ref(gradient), cell, count, place, len(log.events), earlier)
        log.add(GradientRead(place=place, tensor=cell.number))

    def _note_use(self, held: _Taken, place: Place) -> None:
        if 0 < held.count < self._log.cells.pending.get(held.cell.number, 0):
            self._log.add(GradientUse(place=place, tensor=held.cell.number, taken=held.place))

    # ------------------------------------------------------------ values

    def _note_sources(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Note what an operation in place writes a value from, of lists element by element."""
        log = self._log
        if not args:
            return
        target, others = args[0], (*args[1:], *kwargs.values())
        if isinstance(target, torch.Tensor):
            key = key_of(target)
            if key is not None:
                log.sources[key] = frozenset().union(*map(log.sources_of, find_tensors(others)))
        elif isinstance(target, (list, tuple)):
            lists = [each for each in others if isinstance(each, (list, tuple)) and len(each) == len(target)]
            for index, each in enumerate(target):
                key = key_of(each) if isinstance(each, torch.Tensor) else None
                if key is not None:
                    log.sources[key] = frozenset().union(*(log.sources_of(other[index]) for other in lists))

    def _follow_forwards(self, args: Sequence[Any], kwargs: dict[str, Any], result: Any, is_in_place: bool) -> None:
        """Note which values are made of a forward without a graph, and which of these lead to a loss."""
        inputs = [*find_tensors(args), *find_tensors(kwargs.values())]
        forwards = self._log.forwards_of(inputs)
        for each in find_tensors((result, *(args[:1] if is_in_place else ()))) if forwards else ():
            if node_of(each) is not None:
                self._log.use(inputs)
            else:
                self._log.loose.put(each, Tag(forwards=forwards))

    def _follow(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Give results the tags of what they are made of, and nodes of the graph their lines."""
        log = self._log
        results = [each for each in find_tensors((result,)) if each.is_floating_point() or each.is_complex()]
        if not results:
            return
        place = None
        if name in _DISTANCES and not log.running:
            sides = [node_of(each) for each in find_tensors((*args[:2], kwargs.get("input"), kwargs.get("target")))]
            node = node_of(results[0])
            if node is not None and len(sides) == 2 and None not in sides:
                node.metadata[REGRESSION] = tuple(sides)
        if log.roots and name in _KEEPING and node_of(results[0]) is not None:
            for node in filter(None, map(node_of, find_tensors(args))):
                root = node.metadata.get(ROOT)
                if root is not None and root.kept is None:
                    root.kept = place = place or log.place()
        for each in results:
            node = node_of(each)
            if node is not None and PLACE not in node.metadata:
                place = place or log.place()
                node.metadata[PLACE] = place
        if log.calls and not log.tags and name != "detach":
            return
        inputs = [*find_tensors(args), *find_tensors(kwargs.values())]
        tag = self._combine(name, args, inputs)
        if not (log.calls or log.running):
            tag = tag._replace(copy=find_copy(log, name, inputs, results[0]))
        for each in results:
            if tag != EMPTY or log.tags:
                log.tags.put(each, tag)

    def _combine(self, name: str, args: Sequence[Any], inputs: Sequence[torch.Tensor]) -> Tag:
        """Return the tag of what a function makes of tensors: their cuts, what they are made of, and their scale."""
        log = self._log
        tags = [log.tags.of(each) for each in inputs]
        cuts = self._find_cuts(name, inputs, tags)
        sources = frozenset[Source]()
        if not log.calls:
            # What a model computes is made of all its weights; only weights themselves are of interest here.
            for each, tag in zip(inputs, tags, strict=True):
                sources |= log.sources_of(each) if node_of(each) is None else tag.sources
            sources = sources if len(sources) <= _MOST_SOURCES else frozenset()
        scale = next((each.scale for each in tags if each.scale is not None), None)
        if scale is not None:
            numbers = [each for each in args if isinstance(each, float | int)]
            is_inverse = name in MULTIPLYING and any(abs(each * scale - 1) < _ROUNDING for each in numbers)
            if is_inverse or (name in DIVIDING and scale in numbers):
                scale = None
        return Tag(cuts, sources, scale)

    def _find_cuts(self, name: str, inputs: Sequence[torch.Tensor], tags: Sequence[Tag]) -> frozenset[int]:
        """Return the cuts of a result.

        A gradient without a graph that changes weights makes a step of first order. A detached value that meets others
        in a loss is a constant there, as a target is; only where it is added as a term of its own it is dead. What is
        squared, or multiplied by a value with a graph, is no sum of terms: of one row, `target - value` is a number.
        """
        log, found = self._log, set[int]()
        cuts = frozenset[int]().union(*(each.cuts for each in tags))
        if name in _DETACHING or name in _FLAT or not torch.is_grad_enabled():
            cuts = frozenset(each for each in cuts if log.cuts[each].cut.kind == "no_grad")
        if cuts:
            kinds = {each: log.cuts[each].cut.kind for each in cuts}
            is_step = "first_order" in kinds.values() or any(each.is_leaf and each.requires_grad for each in inputs)
            live = sum(node_of(each) is not None for each in inputs)
            is_linear = name in _LINEAR and (live < 2 or name not in (*MULTIPLYING, *DIVIDING))
            is_sum = name in _ADDING and all(each.numel() == 1 for each in inputs)
            for number, kind in kinds.items():
                if kind == "no_create_graph" and is_step:
                    found.add(log.cuts[number].become("first_order", log.cuts))
                elif kind == "detached" and live:
                    found |= {log.cuts[number].become("dead_term", log.cuts)} if is_sum else set()
                elif kind != "dead_term" or is_linear:
                    found.add(number)
        if name == "detach" and inputs and node_of(inputs[0]) is not None:
            log.cuts.append(CutMark(Cut(kind="detached", place=log.place(), what="")))
            found.add(len(log.cuts) - 1)
        return frozenset(found)

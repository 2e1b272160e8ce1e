"""Backwards: what each of them runs through, what it adds to gradients, and what of its graph is gone."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor  # pyright: ignore[reportMissingModuleSource]
from torch._guards import TracingContext

from runtime.audit.trace import NOWHERE, Backward, Cut, Freed, Gain, Place, Regression, Replicated, Spent
from runtime.backends.torch.audit.calls import PLACE, REGRESSION, ROOT
from runtime.backends.torch.audit.log import CutMark, Log, Root, Running
from runtime.backends.torch.audit.models import CUTS, Models
from runtime.backends.torch.audit.provenance import Tag
from runtime.backends.torch.audit.spent import Kernel, find_spent
from runtime.backends.torch.audit.tensors import Cell, find_tensors, key_of, node_of
from runtime.backends.torch.audit.user_lines import find_site

RUNS = "stepgraph-backwards"


class _Run(NamedTuple):
    """An earlier backward that ran through a node, and whether it kept the graph."""

    number: int
    retain: bool


class _Before(NamedTuple):
    """The gradient of a leaf before a backward; a copy where another backward has added to it already."""

    cell: Cell
    leaf: torch.Tensor
    gradient: torch.Tensor | None
    version: int
    copy: torch.Tensor | None


class Engine:
    """Stands in for the one function through which Python enters autograd's engine."""

    def __init__(self, log: Log, models: Models, paused: Callable[[], AbstractContextManager[None]]) -> None:
        self._log, self._models, self._paused = log, models, paused

    def run(self, original: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a backward as it would have run, and note it."""
        log = self._log
        roots = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
        is_traced = TracingContext.try_get() is not None  # by a compiler, which differentiates tensors without numbers
        if log.busy or is_traced or any(map(is_functorch_wrapped_tensor, find_tensors(roots))):
            return original(outputs, *args, **kwargs)
        with log.quiet():
            log.backwards += 1
            event, nodes, leaves = self._prepare(roots, args, kwargs)
            before = [self._look_at(leaf) for leaf in leaves] if event.accumulates else []
        running = Running(event.number, event.place)
        log.running.append(running)
        error = ""
        is_compiled = any("CompiledFunction" in node.name() for node in nodes)
        try:
            with self._paused() if is_compiled else nullcontext():
                result = original(outputs, *args, **kwargs)
        except Exception as problem:
            error = next(iter(str(problem).splitlines()), "") or type(problem).__name__
            raise
        finally:
            log.running.pop()
            with log.quiet():
                gains, spent = ((), ()) if error else self._measure(before, running.kernels)
                event = replace(
                    event,
                    gains=gains,
                    spent=spent,
                    reads=tuple(dict.fromkeys(running.reads)),
                    overwritten=tuple(dict.fromkeys(running.overwritten)),
                    error=error,
                )
                log.add(event)
        with log.quiet():
            self._mark(event, roots, nodes, result)
            self._note_replicas(event, leaves)
        if log.tape is not None and not log.running:
            log.tape.derived(event, roots, _find_inputs(args), result)
        return result

    def _prepare(
        self, roots: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Backward, list[Any], list[torch.Tensor]]:
        """Return the backward as far as it is known before it runs, the nodes that it runs, and its leaves."""
        log = self._log
        _, retain, create, *_ = args
        inputs = _find_inputs(args)
        accumulates = bool(kwargs.get("accumulate_grad", True))
        starts = [node_of(each) if isinstance(each, torch.Tensor) else each.node for each in roots]
        edges = (
            torch.autograd.graph.get_gradient_edge(each) if isinstance(each, torch.Tensor) else each
            for each in inputs
            if not isinstance(each, torch.Tensor) or each.requires_grad
        )
        nodes, leaves = walk(starts, frozenset(edge.node for edge in edges) if inputs else None)
        through, freed = frozenset[int](), None
        for node in nodes:
            for run in node.metadata.get(RUNS, ()):
                through |= {run.number}
                place = node.metadata.get(PLACE)
                if not run.retain and (freed is None or (place is not None and freed.computed == NOWHERE)):
                    freed = Freed(backward=run.number, computed=place or NOWHERE)
        tags = [log.tags.of(each) for each in roots]
        # What else is on the way of a cut graph shows which inputs lead to the loss anyway.
        marked = {number for node in nodes for number in node.metadata.get(CUTS, ())}
        marks: list[CutMark] = [log.cuts[each] for tag in tags for each in sorted(tag.cuts)]
        event = Backward(
            place=log.place(),
            site=find_site(),
            number=log.backwards,
            start=len(log.events),
            accumulates=accumulates,
            retain=bool(retain),
            create=bool(create),
            scale=next((each.scale for each in tags if each.scale is not None), None),
            through=through,
            freed=freed,
            cuts=tuple(dict.fromkeys(replace(each.cut, elsewhere=each.number in marked) for each in marks)),
            regressions=tuple(filter(None, map(self._find_regression, nodes))) if accumulates else (),
            inside=log.backward,
        )
        return event, nodes, leaves

    def _find_regression(self, node: Any) -> Regression | None:
        """Return the distance that a node is, if both sides of it are made of some leaves."""
        sides = node.metadata.get(REGRESSION)
        if sides is None:
            return None
        one, other = ({id(leaf): leaf for leaf in walk([side], None)[1]} for side in sides)
        cells = (self._log.cells.add(one[each]) for each in one.keys() & other.keys())
        numbers = frozenset(cell.number for cell in cells if cell is not None)
        return Regression(node.metadata.get(PLACE, NOWHERE), numbers) if numbers else None

    def _look_at(self, leaf: torch.Tensor) -> _Before:
        cell = self._log.cells.add(leaf)
        assert cell is not None
        gradient = leaf.grad
        if gradient is None:
            return _Before(cell, leaf, None, 0, None)
        is_measured = self._log.cells.pending.get(cell.number) and not gradient.is_sparse
        return _Before(cell, leaf, gradient, gradient._version, gradient.detach().clone() if is_measured else None)

    def _measure(
        self, before: Sequence[_Before], kernels: Sequence[Kernel]
    ) -> tuple[tuple[Gain, ...], tuple[Spent, ...]]:
        """Return which leaves have a new gradient, and the time of the backward by the gradients that it serves."""
        log, gains = self._log, list[Gain]()
        for cell, leaf, gradient, version, copy in before:
            now = leaf.grad
            if now is None or (now is gradient and now._version == version):
                continue
            count = log.cells.pending.get(cell.number, 0) if gradient is not None else 0
            log.cells.pending[cell.number] = count + 1
            log.cells.track_gradient(cell, now)
            gain = Gain(tensor=cell.number, onto=gradient is not None)
            if copy is not None:
                added = now.detach() - copy
                numbers = ((added * copy).sum(), (copy * copy).sum(), (added * added).sum())
                product, old, new = torch.stack(numbers).tolist()
                gain = replace(gain, product=product, old=old, new=new)
            gains.append(gain)
        gained = {each.tensor for each in gains}
        ends = {
            key: cell.number
            for cell, leaf, *_ in before
            if cell.number in gained and leaf.grad is not None and (key := key_of(leaf.grad)) is not None
        }
        return tuple(gains), find_spent(kernels, ends) if ends else ()

    def _mark(self, event: Backward, roots: Sequence[Any], nodes: Sequence[Any], result: Any) -> None:
        """Leave the number of a backward in the nodes that it ran, and a tag on gradients that have no graph."""
        run = _Run(event.number, event.retain)
        for node in nodes:
            node.metadata[RUNS] = (*node.metadata.get(RUNS, ()), run)
        log = self._log
        if event.accumulates and not log.running:
            for each in roots:
                node = node_of(each)
                if node is not None:
                    root = node.metadata[ROOT] = Root(event.place, log.stepped)
                    log.roots.append(weakref.ref(root))
        if event.accumulates or log.running or not torch.is_grad_enabled():
            return
        cuts = frozenset[int]()
        if not event.create:
            log.cuts.append(CutMark(Cut(kind="no_create_graph", place=event.place, what="")))
            cuts = frozenset({len(log.cuts) - 1})
        for each in find_tensors((result,)):
            log.tags.put(each, Tag(cuts=cuts, scale=event.scale))

    def _note_replicas(self, event: Backward, leaves: Sequence[torch.Tensor]) -> None:
        reached = {id(each) for each in leaves}
        for model in self._models.replicated():
            if not any(id(each) in reached for each in model.parameters()) or event.inside:
                continue
            forward = self._models.pending_forwards.pop(id(model), None)
            if not event.accumulates:
                if not event.create:
                    self._replicated(event.place, model, "grad", None)
            elif forward is not None and forward.synced and not model.require_backward_grad_sync:
                self._replicated(event.place, model, "late-no-sync", forward.place)

    def _replicated(self, place: Place, model: nn.Module, kind: Any, other: Place | None) -> None:
        self._log.add(Replicated(place=place, model=self._log.names.of(model), event=kind, other=other))


def _find_inputs(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a backward is asked to differentiate by; nothing means all leaves."""
    return tuple(args[3]) if len(args) > 3 else ()


def walk(starts: Sequence[Any], targets: frozenset[Any] | None) -> tuple[list[Any], list[torch.Tensor]]:
    """Return the nodes that a backward runs, those of leaves left out, and the leaves whose gradient it gives."""
    leads: dict[Any, bool] = {}
    nodes, leaves = list[Any](), list[torch.Tensor]()
    stack = [(each, False) for each in starts if each is not None]
    seen = set[Any]()
    while stack:
        node, is_done = stack.pop()
        if not is_done:
            if node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack.extend((each, False) for each, _ in node.next_functions if each is not None)
            continue
        is_leaf = hasattr(node, "variable")
        is_target = is_leaf if targets is None else node in targets
        leads[node] = is_target or any(leads.get(each, False) for each, _ in node.next_functions)
        if is_leaf and is_target:
            leaves.append(node.variable)
        elif leads[node] and not is_leaf:
            nodes.append(node)
    return nodes, leaves

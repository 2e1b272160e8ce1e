"""Optimizers, loss scalers and schedules: what steps what, and when."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer

from runtime.audit.trace import Kept, Part, Place, ScaledTwice, ScalerStep, ScalerUpdate, Tick, Unscale, Update
from runtime.audit.trace import Optimizer as Facts
from runtime.backends.torch.audit.log import Log, Root
from runtime.backends.torch.audit.tensors import Cell, find_tensors, key_of
from runtime.backends.torch.audit.user_lines import is_called_from

_KEPT = 2
"""After so many steps, what a loop computes anew in each of them is gone."""


class _Stepped(NamedTuple):
    """One tensor of an optimizer before its step."""

    cell: Cell
    tensor: torch.Tensor
    part: Part
    copy: torch.Tensor | None
    """Its value, where its gradient is zero: it should stay."""


class _Step(NamedTuple):
    """A step that is running."""

    place: Place
    start: int
    tensors: list[_Stepped]
    repeated: bool
    overflow: bool
    state: Mapping[tuple[int, str], torch.Tensor]
    """Copies of the state, where the step will be skipped."""
    closure: bool
    unscales: bool
    inner: list[None]
    """One entry for each optimizer that it steps itself."""


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return what an optimizer steps."""
    return [each for group in optimizer.param_groups for each in group["params"]]


class Optimizers:
    """The two global hooks of optimizers, and stand-ins for the methods of scalers and schedules."""

    def __init__(self, log: Log, stop: Callable[[Optimizer], None]) -> None:
        self._log, self._stop = log, stop
        self._steps: list[_Step] = []
        self._ticking = False
        self._repeats = Counter[tuple[Place, frozenset[int]]]()
        """Steps by their line and tensors: a loop may make its optimizer anew for each of them."""
        self._there = [weakref.ref(each) for each in gc.get_objects() if issubclass(type(each), Optimizer)]
        self._made: list[weakref.ref[Optimizer]] = []
        """Optimizers that were there before, and those that were made since."""
        self._idle: list[tuple[weakref.ref[Optimizer], Facts]] = []
        """Those that had not been stepped when the last step began: a local one is gone when the program has ended."""

    def make(self, original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Note that an optimizer is made."""
        original(optimizer, *args, **kwargs)
        self._log.stepped.pop(id(optimizer), None)  # it is that of an optimizer which is gone
        self._made.append(weakref.ref(optimizer))

    @property
    def turns(self) -> list[tuple[Optimizer, int]]:
        """Return the optimizers that take part, and how often each has been stepped.

        One that was there before counts once it is, and one that wraps another as soon as its parameters are stepped.
        """
        stepped = self._log.stepped
        there = [each for each in (ref() for ref in self._there) if each is not None and id(each) in stepped]
        made = [each for each in (ref() for ref in self._made) if each is not None]
        turning = [each for each in (*there, *made) if id(each) in stepped]
        moved = {id(tensor) for each in turning for tensor in parameters_of(each)}
        idle = [each for each in made if id(each) not in stepped]
        waiting = [each for each in idle if any(id(tensor) not in moved for tensor in parameters_of(each))]
        return [*((each, stepped[id(each)]) for each in turning), *((each, 0) for each in waiting)]

    def count(self, optimizer: Optimizer) -> int:
        """Return how often an optimizer was stepped; a new one continues for those of its tensors on this line."""
        again = self._repeats[self._log.place(), frozenset(map(id, parameters_of(optimizer)))]
        return self._log.stepped.get(id(optimizer), again)

    def _alive(self) -> list[weakref.ref[Optimizer]]:
        """Return the optimizers that there are, whether they were stepped or not."""
        return [ref for ref in (*self._there, *self._made) if ref() is not None]

    def facts(self) -> Iterator[Facts]:
        """Yield what is known of the optimizers that there are, and of those that waited when the last step began."""
        alive = self._alive()
        yield from (facts for _, facts in map(self._look_up, alive) if facts.tensors)
        yield from (facts for ref, facts in self._idle if ref not in alive)

    def _look_up(self, ref: weakref.ref[Optimizer]) -> tuple[weakref.ref[Optimizer], Facts]:
        """Return an optimizer that there is, with its name and which of its tensors are known so far."""
        optimizer = ref()
        assert optimizer is not None
        cells = (self._log.cells.known(tensor) for tensor in parameters_of(optimizer))
        numbers = frozenset(cell.number for cell in cells if cell is not None)
        return ref, Facts(name=self._log.names.of(optimizer) if numbers else "", tensors=numbers)

    # ------------------------------------------------------------ steps

    def before_step(
        self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Note what a step is about to see; return its arguments with a closure that is noted as the program's."""
        log = self._log
        if log.busy:
            return None
        if not self._steps:
            self._note_kept()
            with log.quiet():  # while the variables of the program name those that wait for their first step
                waiting = [ref for ref in self._alive() if id(ref()) not in log.stepped]
                self._idle = [each for each in map(self._look_up, waiting) if each[1].tensors]
            self._stop(optimizer)
            if log.tape is not None:
                log.tape.step()
        for each in self._steps:
            each.inner.append(None)
        with log.quiet():
            log.names.of(optimizer)
            tensors = parameters_of(optimizer)
            found = getattr(optimizer, "found_inf", None)
            overflow = isinstance(found, torch.Tensor) and bool(found.any())
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
            self._steps.append(
                _Step(
                    place=log.place(),
                    start=len(log.events),
                    tensors=[each for each in map(self._look_at, dict.fromkeys(tensors)) if each is not None],
                    repeated=len({id(each) for each in tensors}) < len(tensors),
                    overflow=overflow,
                    state={key: value.clone() for key, value in _state_of(optimizer).items()} if overflow else {},
                    closure=closure is not None,
                    unscales=isinstance(getattr(optimizer, "grad_scale", None), torch.Tensor),
                    inner=[],
                )
            )
        log.stepping.append(optimizer)
        log.unfilled.clear()
        if not callable(closure):
            return None
        noted = self._note_closure(closure)
        if "closure" in kwargs:
            return tuple(args), {**kwargs, "closure": noted}
        return (args[0], noted, *args[2:]), dict(kwargs)

    def _note_closure(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Return a closure that runs as what it is: code of the program's, and no part of the optimizer's step."""
        log = self._log

        @functools.wraps(closure)
        def noted(*args: Any, **kwargs: Any) -> Any:
            """Call the closure."""
            stepping, log.stepping = log.stepping, []
            try:
                return closure(*args, **kwargs)
            finally:
                log.stepping = stepping

        return noted

    def _note_kept(self) -> None:
        """Note losses that are still there, with their graphs, when every optimizer has taken two steps since."""
        log, kept = self._log, list[weakref.ref[Root]]()
        for ref in log.roots:
            root = ref()
            if root is None or not log.stepped:
                continue
            if any(count - root.turns.get(each, 0) < _KEPT for each, count in log.stepped.items()):
                kept.append(ref)
                continue
            del root
            gc.collect()  # a loss that only a cycle holds is no one's
            root = ref()
            if root is not None:
                log.add(Kept(place=root.kept or root.place, backward=root.place))
        log.roots = kept

    def _look_at(self, tensor: torch.Tensor) -> _Stepped | None:
        cell = self._log.cells.add(tensor)
        if cell is None:
            return None
        self._log.names.complete(cell)
        gradient = tensor.grad
        is_zero = (
            gradient is not None
            and not self._log.cells.pending.get(cell.number)
            and not gradient.is_sparse
            and not bool(gradient.any())
        )
        part = Part(tensor=cell.number, has_gradient=gradient is not None, zero=is_zero, required=tensor.requires_grad)
        return _Stepped(cell, tensor, part, tensor.detach().clone() if is_zero else None)

    def after_step(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note what a step has done."""
        log = self._log
        if log.busy or not log.stepping or log.stepping[-1] is not optimizer:
            return
        log.stepping.pop()
        step = self._steps.pop()
        self._repeats[step.place, frozenset(map(id, parameters_of(optimizer)))] += 1
        self._log.stepped[id(optimizer)] = self._log.stepped.get(id(optimizer), 0) + 1
        if step.inner and not step.closure:
            return  # it has only stepped another optimizer, which has its own event
        with log.quiet():
            now = _state_of(optimizer) if step.overflow else {}
            changed = any(
                key[1] != "step"
                and (
                    not torch.equal(value, step.state.get(key, torch.zeros_like(value)))
                    or (key not in step.state and key_of(value) in log.unfilled)
                )
                for key, value in now.items()
            )
            states = {key_of(each) for each in _state_of(optimizer).values()} - {None}
            gradients = ((each.cell.number, each.tensor.grad) for each in step.tensors)
            log.add(
                Update(
                    place=step.place,
                    optimizer=log.names.of(optimizer),
                    parts=tuple(
                        replace(part, moved=copy is not None and not torch.equal(tensor.detach(), copy))
                        for _, tensor, part, copy in step.tensors
                    ),
                    start=step.start,
                    repeated=step.repeated,
                    overflow=step.overflow,
                    state_written=changed,
                    closure=step.closure,
                    unscales=step.unscales,
                    aliases=frozenset(
                        number for number, each in gradients if each is not None and key_of(each) in states
                    ),
                )
            )
            if log.tape is not None:
                log.tape.stepped(optimizer)

    # ------------------------------------------------------------ loss scalers

    def scale(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        """Note that a loss is multiplied by the scale."""
        result = original(scaler, outputs)
        log = self._log
        if scaler.is_enabled() and not log.busy:
            inner = next((tag.scale for tag in map(log.tags.of, find_tensors((outputs,))) if tag.scale), None)
            if inner is not None:
                log.add(ScaledTwice(place=log.place(), scale=inner))
            with log.quiet():
                factor = scaler.get_scale()
                for each in (result,) if isinstance(result, torch.Tensor) else result:
                    log.tags.put(each, log.tags.of(each)._replace(scale=factor))
                if log.tape is not None:
                    log.tape.alias(result, outputs)
        return result

    def unscale(self, original: Callable[..., Any], scaler: Any, optimizer: Optimizer) -> Any:
        """Note that gradients are divided by the scale."""
        log, before = self._log, self._log.scaling
        log.scaling = True
        try:
            result = original(scaler, optimizer)
        except RuntimeError as problem:
            self._note_refusal(scaler, optimizer, problem)
            raise
        finally:
            log.scaling = before
        if scaler.is_enabled():
            with log.quiet():
                log.add(
                    Unscale(
                        place=log.place(),
                        scaler=id(scaler),
                        optimizer=log.names.of(optimizer),
                        scale=scaler.get_scale(),
                        tensors=self._numbers(optimizer),
                    )
                )
        return result

    def scaler_step(
        self, original: Callable[..., Any], scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        """Note that a scaler steps an optimizer, or skips it."""
        log, before = self._log, self._log.stepped.get(id(optimizer), 0)
        place = log.place()
        was_scaling, log.scaling = log.scaling, True
        try:
            result = original(scaler, optimizer, *args, **kwargs)
        except RuntimeError as problem:
            self._note_refusal(scaler, optimizer, problem)
            raise
        finally:
            log.scaling = was_scaling
        if scaler.is_enabled():
            skipped = self._log.stepped.get(id(optimizer), 0) == before
            self._log.stepped[id(optimizer)] = before + 1
            with log.quiet():
                name, tensors = log.names.of(optimizer), self._numbers(optimizer)
            log.add(ScalerStep(place=place, scaler=id(scaler), optimizer=name, tensors=tensors, skipped=skipped))
        return result

    def _note_refusal(self, scaler: Any, optimizer: Optimizer, problem: RuntimeError) -> None:
        log, text = self._log, str(problem).splitlines()[0]
        with log.quiet():
            name = log.names.of(optimizer)
        log.add(ScalerStep(place=log.place(), scaler=id(scaler), optimizer=name, tensors=(), skipped=True, error=text))

    def scaler_update(self, original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        """Note that a scaler moves its scale."""
        result = original(scaler, *args, **kwargs)
        if scaler.is_enabled():
            self._log.add(ScalerUpdate(place=self._log.place(), scaler=id(scaler)))
        return result

    def _numbers(self, optimizer: Optimizer) -> tuple[int, ...]:
        cells = (self._log.cells.add(each) for each in parameters_of(optimizer))
        return tuple(cell.number for cell in cells if cell is not None)

    # ------------------------------------------------------------ schedules

    def tick(self, original: Callable[..., Any], schedule: Any, *args: Any, **kwargs: Any) -> Any:
        """Note that a schedule is advanced, by the program rather than by itself or another schedule."""
        if self._ticking or self._log.busy or is_called_from("_initial_step", "__init__"):
            return original(schedule, *args, **kwargs)
        self._ticking = True
        try:
            result = original(schedule, *args, **kwargs)
        finally:
            self._ticking = False
        log = self._log
        with log.quiet():
            optimizer = getattr(schedule, "optimizer", None)
            if isinstance(optimizer, Optimizer):
                name = log.names.of(optimizer)
                log.add(Tick(place=log.place(), schedule=log.names.of(schedule), optimizer=name))
        return result


def _state_of(optimizer: Optimizer) -> dict[tuple[int, str], torch.Tensor]:
    """Return the tensors in the state of an optimizer."""
    return {
        (index, name): value
        for index, tensor in enumerate(parameters_of(optimizer))
        for name, value in optimizer.state.get(tensor, {}).items()
        if isinstance(value, torch.Tensor)
    }

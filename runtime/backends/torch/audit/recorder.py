"""The recorder: all that listens while a program runs, put in place together and taken away together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from runtime.audit.recording import Enough
from runtime.audit.trace import Optimizer as OptimizerFacts
from runtime.audit.trace import Stored, Trace
from runtime.backends.torch.audit.calls import Calls
from runtime.backends.torch.audit.engine import Engine
from runtime.backends.torch.audit.kernels import Kernels
from runtime.backends.torch.audit.log import Log
from runtime.backends.torch.audit.models import Models
from runtime.backends.torch.audit.optimizers import Optimizers, parameters_of
from runtime.backends.torch.audit.saved import SavedTensors

_PATIENCE = 10
"""So many times as often as asked for, one optimizer may step while another does not."""


class Recorder:
    """Records what runs between `start` and `finish`; it judges nothing and changes nothing.

    ``steps``: raise :class:`Enough` where the program begins another step after so many.
    """

    def __init__(self, steps: int | None = None) -> None:
        self._steps = steps
        self._log = Log()
        self._stack = ExitStack()

    def start(self) -> None:
        """Begin to listen."""
        log, stack = self._log, self._stack
        self._models = models = Models(log)
        self._optimizers = optimizers = Optimizers(log, self._stop_if_done)
        engine, saved, kernels = Engine(log, models), SavedTensors(log), Kernels(log)
        for handle in (
            modules.register_module_forward_pre_hook(models.enter),
            modules.register_module_forward_hook(models.leave, always_call=True),
            register_optimizer_step_pre_hook(optimizers.before_step),
            register_optimizer_step_post_hook(optimizers.after_step),
        ):
            stack.callback(handle.remove)
        for home in (torch.autograd, torch.autograd.graph):
            self._replace(home, "_engine_run_backward", engine.run)
        self._replace(Optimizer, "__init__", optimizers.make)
        scaler = torch.amp.grad_scaler.GradScaler
        self._replace(scaler, "scale", optimizers.scale)
        self._replace(scaler, "unscale_", optimizers.unscale)
        self._replace(scaler, "step", optimizers.scaler_step)
        self._replace(scaler, "update", optimizers.scaler_update)
        for each in vars(lr_scheduler).values():
            if isinstance(each, type) and hasattr(each, "get_last_lr") and "step" in vars(each):
                self._replace(each, "step", optimizers.tick)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack))
        stack.enter_context(kernels)
        stack.enter_context(Calls(log, kernels))

    def finish(self, error: str = "") -> Trace:
        """Stop listening, let go of everything, and return the trace."""
        self._stack.close()
        log = self._log
        with log.quiet():
            optimizers = self._find_optimizers()
            for cell in log.cells.all:
                log.names.complete(cell)
            tensors = tuple(
                Stored(number=cell.number, model=cell.model, name=cell.name, kind=cell.kind, floating=cell.floating)
                for cell in log.cells.all
            )
        trace = Trace(
            tensors=tensors,
            events=tuple(log.events),
            optimizers=optimizers,
            unseen=tuple(log.unseen),
            error=error,
        )
        self._log = Log()
        return trace

    def _find_optimizers(self) -> tuple[OptimizerFacts, ...]:
        """Return the optimizers that there are, whether they were stepped or not."""
        log, found = self._log, list[OptimizerFacts]()
        for each in self._optimizers.alive():
            cells = (log.cells.known(tensor) for tensor in parameters_of(each))
            numbers = frozenset(cell.number for cell in cells if cell is not None)
            if numbers:
                found.append(OptimizerFacts(name=log.names.of(each), tensors=numbers))
        return tuple(found)

    def _stop_if_done(self, optimizer: Optimizer) -> None:
        """Raise Enough where an optimizer begins a step after the last one that was asked for."""
        if self._steps is None:
            return
        counts = self._optimizers.stepped
        mine = counts.get(id(optimizer), 0)
        least = min((counts.get(id(each), 0) for each in self._optimizers.alive()), default=0)
        if mine >= self._steps and (least >= self._steps or mine >= _PATIENCE * self._steps):
            raise Enough

    def _replace(self, home: Any, name: str, stand_in: Callable[..., Any]) -> None:
        """Put a function in the place of another, which it is given as its first argument."""
        original = vars(home)[name]

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            """Call the stand-in."""
            return stand_in(original, *args, **kwargs)

        setattr(home, name, called)
        self._stack.callback(setattr, home, name, original)

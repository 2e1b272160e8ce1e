"""The recorder: all that listens while a program runs, put in place together and taken away together."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from graphspec.words import enumerate_words
from runtime.audit.recording import Enough
from runtime.audit.trace import NOWHERE, Stored, Trace, Update
from runtime.backends.torch.audit.calls import Calls
from runtime.backends.torch.audit.engine import Engine
from runtime.backends.torch.audit.kernel_accesses import Kernels
from runtime.backends.torch.audit.log import Log
from runtime.backends.torch.audit.models import Models
from runtime.backends.torch.audit.optimizers import Optimizers
from runtime.backends.torch.audit.saved import SavedTensors
from runtime.backends.torch.audit.taping import Taping
from runtime.backends.torch.audit.user_lines import find_place, is_recorder
from runtime.backends.torch.audit.warned import warn
from runtime.port.tape import Tape

_PATIENCE = 10
"""So many times as often as asked for, one optimizer may step while another does not."""


class Recorder:
    """Records what runs between `start` and `finish`; it judges nothing and changes nothing.

    ``steps``: raise :class:`Enough` where the program begins another step after so many.
    """

    def __init__(self, steps: int | None = None) -> None:
        self._steps = steps
        self._log = Log()
        self._taping: Taping | None = None
        self._stack = ExitStack()

    def start_tape(self) -> None:
        """Begin to listen, and note what the program makes of what as well."""
        self._taping = self._log.tape = Taping(self._log)
        self.start()

    def finish_tape(self, error: str = "") -> Tape:
        """Stop listening and return the tape."""
        taping = self._taping
        assert taping is not None
        return taping.finish(self.finish(error))

    def start(self) -> None:
        """Begin to listen."""
        log, stack = self._log, self._stack
        self._models = models = Models(log)
        self._optimizers = optimizers = Optimizers(log, self._stop_if_done)
        engine, saved, kernels = Engine(log, models, self._paused), SavedTensors(log), Kernels(log)
        self._hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack)
        self._modes = kernels, Calls(log, kernels)
        for handle in (
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
        self._replace(warnings, "_showwarnmsg", _show_warning)
        self._replace(warnings, "warn", warn)
        self._replace(torch.autograd.graph, "disable_saved_tensors_hooks", self._transform)
        self._replace(torch, "compile", self._compile)
        if "torch._dynamo.eval_frame" in sys.modules:
            self._replace(sys.modules["torch._dynamo.eval_frame"].OptimizedModule, "__call__", self._call_compiled)
        stack.callback(self._let_go)
        self._listen()

    def _listen(self) -> None:
        """Put in place what the compiler must not see."""
        self._handles = (
            modules.register_module_forward_pre_hook(self._models.enter),
            modules.register_module_forward_hook(self._models.leave, always_call=True),
        )
        for each in (self._hooks, *self._modes):
            each.__enter__()

    def _let_go(self) -> None:
        """Take it away again."""
        for each in (*reversed(self._modes), self._hooks):
            each.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Listen to nothing while compiled code runs; PyTorch would not run it as compiled, or would compile us."""
        mine = _get_current_function_mode() is self._modes[1] and _get_current_dispatch_mode() is self._modes[0]
        if not mine:  # paused already, or the program has modes of its own
            yield
            return
        self._let_go()
        try:
            yield
        finally:
            self._listen()

    @contextmanager
    def _transform(self, original: Callable[..., Any], message: str) -> Iterator[None]:
        """Listen to nothing while a transform of functions runs, which works without hooks of saved tensors alone."""
        self._log.unseen["torch.func transforms functions: these cannot be observed"] = None
        with self._paused(), original(message):
            yield

    def _compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Compile as always; calls of the result are not looked into."""
        compiled = original(*args, **kwargs)
        if not callable(compiled) or not (args or kwargs.get("model")):
            return compiled  # a decorator, which compiles later
        if isinstance(compiled, nn.Module):
            if type(compiled).__name__ == "OptimizedModule" and not hasattr(type(compiled).__call__, "__wrapped__"):
                self._replace(type(compiled), "__call__", self._call_compiled)
            return compiled

        @functools.wraps(compiled)
        def called(*args: Any, **kwargs: Any) -> Any:
            """Call the compiled function."""
            self._log.unseen[f"{getattr(compiled, '__name__', 'a function')} is compiled: it cannot be observed"] = None
            with self._paused():
                return compiled(*args, **kwargs)

        return called

    def _call_compiled(self, original: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Call a compiled module, which cannot be observed."""
        self._models.enter(module, args)
        result = None
        try:
            with self._paused():
                result = original(module, *args, **kwargs)
        finally:
            self._models.leave(module, args, result)
        return result

    def finish(self, error: str = "") -> Trace:
        """Stop listening, let go of everything, and return the trace."""
        self._stack.close()
        log = self._log
        if not any(isinstance(each, Update) for each in log.events):
            log.unseen["no optimizer of PyTorch took a step: the program's own updates are not checked"] = None
        with log.quiet():
            optimizers = tuple(self._optimizers.facts())
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
            seconds=log.seconds,
        )
        self._log = Log()
        return trace

    def _stop_if_done(self, optimizer: Optimizer) -> None:
        """Raise Enough where an optimizer begins a step after the last one that was asked for."""
        if self._steps is None:
            return
        mine = self._optimizers.count(optimizer)
        if mine < self._steps:
            return
        turns = self._optimizers.turns
        late = [each for each, count in turns if count < self._steps and each is not optimizer]
        if late and mine < _PATIENCE * self._steps:
            return
        if late:
            with self._log.quiet():
                names = enumerate_words([self._log.names.of(each) for each in late], conjunction="and")
                said = f"{names} took fewer than {self._steps} steps within {mine} of {self._log.names.of(optimizer)}"
            self._log.unseen[f"{said}, where the audit ended the program: later steps are not checked"] = None
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


def _show_warning(original: Callable[..., None], shown: warnings.WarningMessage) -> None:
    """Show a warning at the user's line where PyTorch would name a stand-in, its caller."""
    if is_recorder(shown.filename) and (place := find_place()) != NOWHERE:
        shown = warnings.WarningMessage(
            shown.message, shown.category, place.file, place.line, shown.file, None, shown.source
        )
    original(shown)

"""The dry run: calls every function once before the first step, on real copies where they are small, else fake tensors.

To import fake tensors takes a second, and every operation on one as long as on a hundred thousand numbers.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import torch
from msgspec import Struct
from torch import nn

from compiler.ir.instructions import Evaluate, Forward, Instruction, TakeAccumulated, Transform
from compiler.ir.program import Function, Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.compat import DispatchMode, copying, fake_mode, find_written, is_alias
from runtime.backends.torch.devices import Setting
from runtime.backends.torch.execution import ERRORS, Loaded, explain_unfakeable, load_module
from runtime.backends.torch.library.metrics import Counting
from runtime.backends.torch.untouched import untouched, unwritten
from runtime.codegen.lower.accumulate import REGISTER
from runtime.codegen.module import Emitted
from runtime.codegen.needs import find_metrics
from runtime.codegen.resources import find_functions, find_inputs, find_instructions
from runtime.engine.errors import diagnose
from runtime.engine.load import Call, find_arguments, find_caller, find_span
from runtime.problems import describe, quiet, show_frames
from runtime.support.closures import bound_again

_HELP = "values are immutable: give the layer `inplace=False`, or begin with a copy, `x = x.clone()`"


def is_users(instruction: Instruction) -> bool:
    """Return whether an instruction runs code of the user's.

    Nothing built in writes into its inputs. A fused optimizer that runs after a transform declares that it writes into
    its gradients.
    """
    if isinstance(instruction, Evaluate | Transform):
        return not instruction.function.builtin
    return isinstance(instruction, Forward)


class Mutations(Struct, kw_only=True):
    """The writes of users' code into its inputs, seen while a module runs."""

    loaded: Loaded
    spec: GraphSpec
    watched_ops: frozenset[str]
    """The ops that call users' code."""
    found: list[Diagnostic] = []

    @classmethod
    def of(cls, loaded: Loaded, spec: GraphSpec) -> Mutations:
        """Return a watch over a step that has seen nothing yet."""
        users = frozenset(each.op for each in find_instructions(loaded.program) if is_users(each))
        return cls(loaded=loaded, spec=spec, watched_ops=users)

    def watched(self) -> DispatchMode:
        """Return a context that records every such write."""
        return _Writes(self)

    def note(self, tensor: torch.Tensor) -> None:
        """Record a write into a tensor, where it shares its memory with an input of the op that runs."""
        caller = find_caller(sys._getframe(), self.loaded)
        if caller is None or caller[1] not in self.watched_ops:
            return
        frame, op = caller
        for instruction, name, value in find_arguments(frame, op, self.loaded):
            if is_users(instruction) and any(is_alias(tensor, each) for each in _flatten(value)):
                self.found.append(self._report(instruction, name, frame))
                return

    def _report(self, instruction: Call, name: str, outer: FrameType) -> Diagnostic:
        """Return the problem of one write, with the user's lines that run now below a frame of the emitted module."""
        inside: list[tuple[FrameType, int]] = []
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame is not outer:
            inside.append((frame, frame.f_lineno))
            frame = frame.f_back
        lines = show_frames(reversed(inside))
        match instruction:
            case Forward(model=model, method=None):
                callee = f"model '{model}'"
            case Forward(model=model, method=method):
                callee = f"`{method}` of model '{model}'"
            case Evaluate(function=function) | Transform(function=function):
                callee = f"'{function.name}'"
        return Diagnostic(
            code="GS216",
            message=f"op '{instruction.op}': {callee} writes into its input '{name}'",
            span=find_span(self.spec, instruction.op),
            notes=("\n".join(("written in:", *(f"  {line}" for line in lines))),) if lines else (),
            help=_HELP,
        )


class _Writes(DispatchMode):
    """Records the tensors that an operation writes into."""

    def __init__(self, mutations: Mutations) -> None:
        super().__init__()
        self.mutations = mutations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, after recording what it writes."""
        for tensor in find_written(func, args, kwargs or {}):
            self.mutations.note(tensor)
        return func(*args, **(kwargs or {}))


def _flatten(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or those of a set of gradients."""
    match value:
        case torch.Tensor():
            yield value
        case list() | tuple():
            for each in value:
                yield from _flatten(each)
        case _:
            return


class Uncounted:
    """A metric that counts nothing and returns a number."""

    def __call__(self, *inputs: Any, **named: Any) -> torch.Tensor:
        """Return a number."""
        return torch.zeros(())


def stand_in(running: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory of running metrics in place of an emitted module's own.

    A function of a batch is run unchanged. A class or object with a count copies its tensors when it is made, and
    a deep copy of a fake tensor corrupts memory of the process (seen in torch 2.13 with torchmetrics' ``MeanMetric``).
    """

    def make(clock: Any, metric: Any, *given: Any, **options: Any) -> Any:
        """Return a stand-in for what counts by itself."""
        if isinstance(metric, (type, Counting)):
            return Uncounted()
        return running(clock, metric, *given, **options)

    return make


Models = Mapping[str, nn.Module]
Tensors = Mapping[str, torch.Tensor]
SMALL, CHEAP = 1_000_000, 2**31
"""How many numbers the models of a small step have at most, and how many times those of the inputs: about what dense
and convolutional layers multiply, a tenth of a second on one core."""


class Trial(Struct, frozen=True, kw_only=True):
    """The subject of a dry run: a module's text, its models, inputs and modes."""

    emitted: Emitted
    program: Program
    spec: GraphSpec
    models: Models
    inputs: Tensors
    setting: Setting
    modes: tuple[str, ...]
    dataset: str | None = None
    """The data set that the inputs are of; None where there is only one."""
    around: Callable[[Models], AbstractContextManager[object]] = nullcontext
    """Returns the context of the run, which observes the copies it runs on."""

    @classmethod
    def of(cls, loaded: Loaded, spec: GraphSpec, models: Models, setting: Setting) -> Trial:
        """Return the trial of a loaded module in all its modes; its inputs are still to be given."""
        return cls(
            emitted=loaded.emitted,
            program=loaded.program,
            spec=spec,
            models=models,
            inputs={},
            setting=setting,
            modes=tuple(mode.mode for mode in loaded.program.modes),
        )

    def is_small(self) -> bool:
        """Return whether the step computes less on real tensors than fake ones take to import."""
        models = self.models.values()
        kept = sum(each.numel() for model in models for each in (*model.parameters(), *model.buffers()))
        given = sum(each.numel() for each in self.inputs.values())
        return kept <= SMALL and kept * given <= CHEAP


class TrialResult(Struct, frozen=True, kw_only=True):
    """What a dry run found.

    ``is_real``: it was a run on real copies; ``instead``: why one with fake tensors failed, if it did; ``missing``: why
    no run was possible.
    """

    problems: tuple[Diagnostic, ...] = ()
    outputs: Mapping[str, Tensors] = {}
    is_real: bool = False
    instead: str = ""
    missing: str = ""


def run_dry(trial: Trial) -> TrialResult:
    """Run every function of a trial once; neither models nor random states are changed.

    A small step runs on real copies, a large one with fake tensors, and what fails is repeated the other way.
    Where both fail, the real copies decide: their messages are better.
    """
    with quiet(), untouched(), unwritten(trial.models):
        first = _Attempt.of(trial, fake=not trial.is_small())
        first.run()
        if not first.failures:
            return first.result()
        second = _Attempt.of(trial, fake=not first.fake)
        second.run()
    deciding = first if second.failures and second.fake else second
    if deciding.failures and not (deciding.problems or deciding.mutations.found):
        return TrialResult(missing=deciding.failures[0])
    return deciding.result(instead=first.failures[0] if first.fake else "")


class _Attempt(Struct, frozen=True, kw_only=True):
    """One run of a trial, and what it found."""

    trial: Trial
    fake: bool
    loaded: Loaded
    mutations: Mutations
    failures: list[str] = []
    problems: list[Diagnostic] = []
    outputs: dict[str, Tensors] = {}

    @classmethod
    def of(cls, trial: Trial, *, fake: bool) -> _Attempt:
        """Return an attempt with a module of its own."""
        loaded = load_module(trial.emitted, trial.program)
        return cls(trial=trial, fake=fake, loaded=loaded, mutations=Mutations.of(loaded, trial.spec))

    def run(self) -> None:
        """Build on copies and call every function; with fake tensors only shapes and types are computed."""
        fake = fake_mode() if self.fake else None
        memo: dict[int, Any] = {}  # what models share stays shared
        parts = [part for model in self.trial.models.values() for part in model.modules()]
        try:
            with copying(fake) if fake is not None else nullcontext(), bound_again(parts, memo):
                models = copy.deepcopy(dict(self.trial.models), memo)
                inputs = copy.deepcopy(dict(self.trial.inputs))
        except Exception as error:
            self.failures.append(f"the models cannot be copied: {describe(error)}")
            return
        with fake or nullcontext(), self.trial.around(models), self.mutations.watched():
            self._try(lambda: self._build(models))
            for function in () if self.failures else find_functions(self.trial.program):
                is_fed = self.trial.dataset is None or self.trial.dataset in (
                    function.datasets or (self.trial.dataset,)
                )
                if function.mode in self.trial.modes and is_fed:
                    self._try(lambda function=function: self._call(function, inputs))
                    self.problems.extend(self._find_aliases(function, models))
            self.problems.extend(self._find_replaced(models))

    def result(self, instead: str = "") -> TrialResult:
        """Return what was found; ``instead`` says why fake tensors would not do."""
        problems = self.mutations.found or self.problems  # failures after an input was overwritten are due to that
        return TrialResult(
            problems=tuple(dict.fromkeys(problems)), outputs=self.outputs, is_real=not self.fake, instead=instead
        )

    def _build(self, models: Models) -> None:
        """Call the module's ``build`` with the copies in place of the models it would make."""
        self.loaded.names["make_models"] = lambda *arguments: models
        if self.fake and not all(each.function.builtin for _, each in find_metrics(self.trial.program)):
            self.loaded.names["running"] = stand_in(self.loaded.names["running"])
        if "Replicas" in self.loaded.names:  # others need not try it at the same time
            self.loaded.names["Replicas"] = partial(self.loaded.names["Replicas"], alone=True)
        self.loaded.call("build", 0, self.trial.setting.device, self.trial.setting.dtype)
        if self.fake and "verdicts" in self.loaded.names:  # fake tensors have no values: assume that all are finite
            self.loaded.names["verdicts"].ask = lambda flags: [True] * len(flags)

    def _call(self, function: Function, inputs: Tensors) -> None:
        """Call one function with the inputs it needs, regardless of its clocks."""
        given = {entry.name: inputs[entry.name] for entry in find_inputs(self.trial.program, function)}
        self.loaded.start(function.mode)
        for each in (each for each in function.instructions if isinstance(each, TakeAccumulated) and each.alone):
            window = self.loaded.names[REGISTER][each.window]
            # As an earlier step would have left it.
            window.add([torch.zeros_like(parameter) for parameter in window.parameters])
        self.outputs[function.name] = self.loaded.call(self.loaded.emitted.names.function(function.name), given)

    def _find_aliases(self, function: Function, models: Models) -> Iterator[Diagnostic]:
        """Yield a problem for every result of a forward that is a parameter or buffer: an update would change it."""
        results = self.outputs.get(function.name, {})
        for each in (each for each in function.instructions if isinstance(each, Forward)):
            for value in each.outputs:
                model, result = models.get(each.model), results.get(value)
                if model is None or not isinstance(result, torch.Tensor):
                    continue
                named = (*model.named_parameters(), *model.named_buffers())
                key = next((key for key, tensor in named if is_alias(result, tensor)), None)
                if key is not None:
                    yield Diagnostic(
                        code="GS260",
                        message=f"op '{each.op}': model '{each.model}' returns its own '{key}' as '{value}'",
                        span=find_span(self.trial.spec, each.op),
                        help=f"a value must outlive the next update of the model: return `{key}.clone()`",
                    )

    def _find_replaced(self, models: Models) -> Iterator[Diagnostic]:
        """Yield a problem for every model whose buffers are followed and were replaced by a forward, not written."""
        for name, model in models.items():
            followed = self.loaded.names.get(self.loaded.emitted.names.buffers(name), ())
            kept = {id(buffer) for buffer in followed}
            for key, buffer in model.named_buffers() if followed else ():
                if id(buffer) not in kept:
                    yield Diagnostic(
                        code="GS215",
                        message=f"a forward of model '{name}' replaces its buffer '{key}' by a new tensor",
                        span=find_span(self.trial.spec, name),
                        help=f"write into it, so that averages and copies find it: `self.{key}.copy_(...)`",
                    )

    def _try(self, action: Callable[[], None]) -> None:
        """Do something, and keep its failure as a diagnostic."""
        try:
            action()
        except Exception as error:
            self.failures.append(explain_unfakeable(error))
            self.problems.append(diagnose(error, self.loaded, self.trial.spec, ERRORS))

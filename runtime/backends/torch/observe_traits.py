"""Observed traits: runs user classes once without training, and compiles the plan again with the observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from msgspec.structs import replace
from torch import nn

from compiler import Plan
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.compat import DispatchMode, has_drawn, is_batch_norm, watched_checkpoints
from runtime.backends.torch.devices import Setting
from runtime.backends.torch.dryrun import Trial, TrialResult, run_dry
from runtime.backends.torch.execution import ERRORS, Loaded, load_program
from runtime.backends.torch.library.modules import parameter_types
from runtime.backends.torch.library.weights import load_weights
from runtime.backends.torch.models import find_reducers, has_lazy_layers
from runtime.backends.torch.tensors import sample_inputs
from runtime.backends.torch.untouched import untouched, unwritten
from runtime.codegen.resources import find_functions, find_inputs
from runtime.engine.backend import Signature
from runtime.engine.batch_sizes import Batches, find_neighbour
from runtime.engine.errors import diagnose
from runtime.engine.load import find_span
from runtime.engine.observe import Observer, RunObservation, evaluating, find_types
from runtime.engine.replicas import refuse_reducers
from runtime.problems import quiet
from runtime.step import StepError


@dataclass(slots=True, kw_only=True)
class Watch:
    """The observations of models while they run: which ran, which draw random numbers, and which are recomputed."""

    ran: set[str] = field(default_factory=set[str])
    drawing: set[str] = field(default_factory=set[str])
    recomputing: set[str] = field(default_factory=set[str])
    redrawing: set[str] = field(default_factory=set[str])
    """Those that draw other numbers when they are recomputed."""
    running: list[str] = field(default_factory=list[str])
    checkpoints: int = 0
    """How many calls are under way that will run again."""
    unpreserved: int = 0
    """How many of them will draw other numbers then."""

    @contextmanager
    def over(self, models: Mapping[str, nn.Module]) -> Iterator[None]:
        """Watch models while the context lasts."""
        with self.over_checkpoints(models), _Draws(self):
            yield

    @contextmanager
    def over_checkpoints(self, models: Mapping[str, nn.Module]) -> Iterator[None]:
        """Watch which models run and are recomputed, while the context lasts."""
        hooks: list[Any] = []
        for name, model in models.items():
            hooks.append(model.register_forward_pre_hook(partial(self._enter, name)))
            hooks.append(model.register_forward_hook(partial(self._leave, name), always_call=True))
        try:
            with watched_checkpoints(self._recomputed):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def _recomputed(self, preserved: bool) -> Iterator[None]:
        """Record that everything inside is recomputed when a gradient is taken."""
        self.recomputing.update(self.running)
        self.checkpoints += 1
        self.unpreserved += not preserved
        try:
            yield
        finally:
            self.checkpoints -= 1
            self.unpreserved -= not preserved

    def _enter(self, name: str, *_: object) -> None:
        """Record that a model starts to run."""
        self.ran.add(name)
        self.running.append(name)

    def _leave(self, name: str, *_: object) -> None:
        """Record that a model has run."""
        self.running.remove(name)


class _Draws(DispatchMode):
    """Records the model that runs when an operation draws random numbers."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; where it draws, record for which model."""
        if has_drawn(func, args, kwargs or {}):
            self.watch.drawing.update(self.watch.running)
            is_own = self.watch.checkpoints and (kwargs or {}).get("generator") is not None
            self.watch.redrawing.update(self.watch.running if self.watch.unpreserved or is_own else ())
        return func(*args, **(kwargs or {}))


def give_sizes(
    models: Mapping[str, nn.Module], program: Program, spec: GraphSpec, setting: Setting, batches: Batches
) -> None:
    """Call the models on real tensors, in evaluation, so that lazy layers take the sizes of their inputs.

    Raises StepError: GS214 where the inputs have unknown sizes, GS210 and GS211 where a call fails.
    """
    lazy = [name for name, model in models.items() if has_lazy_layers(model)]
    if not lazy:
        return
    inputs = sample_inputs(program, {"batch": batches.sizes[0]}, setting.device, setting.dtype)
    if inputs is None:
        message = f"model '{lazy[0]}' has lazy layers, whose sizes depend on inputs of unknown shape"
        help = "declare the shapes of all inputs, with `batch` as the only free size"
        found = Diagnostic(code="GS214", message=message, span=find_span(spec, lazy[0]), help=help)
        raise StepError([found], spec.texts())

    def call_at(size: int) -> None:
        """Call the models with batches of a size."""
        sized = sample_inputs(program, {"batch": size}, setting.device, setting.dtype) or {}
        with quiet(), untouched(), unwritten(models), _kept(models), torch.no_grad():
            torch.manual_seed(setting.seed)
            evaluated = evaluating(program)
            loaded = load_program(evaluated, models)
            try:
                loaded.call("build", *setting.place, models)
                for function in find_functions(evaluated):
                    given = {entry.name: sized[entry.name] for entry in find_inputs(evaluated, function)}
                    loaded.start(function.mode)
                    loaded.call(loaded.emitted.names.function(function.name), given)
            except Exception as error:
                raise StepError([diagnose(error, loaded, spec, ERRORS)], spec.texts()) from None

    batches.attempt(call_at)


@contextmanager
def _kept(models: Mapping[str, nn.Module]) -> Iterator[None]:
    """Restore on the way out the training flags of modules, which a call changes in addition to sizes."""
    modules = [module for model in models.values() for module in model.modules()]
    training = [module.training for module in modules]
    try:
        yield
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode


Models: TypeAlias = Mapping[str, nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObserver(Observer[torch.device, torch.dtype, nn.Module]):
    """Makes models of PyTorch, and observes them in dry runs at two batch sizes."""

    setting: Setting
    converted: dict[str, str] = field(default_factory=dict[str, str])
    """Class -> the type in which it makes its parameters, where that is not a usual one."""
    framework = ERRORS

    def load(self, program: Program, given: Models) -> Loaded:
        """Return the executed module that makes models; it notes those made in another type on purpose."""
        loaded = load_program(program, given)
        convert = loaded.names.get("in_type")
        if convert is None:
            return loaded

        def noting(model: nn.Module, name: str, dtype: torch.dtype) -> None:
            """Convert a model."""
            types = parameter_types(model).values() if isinstance(model, nn.Module) else ()
            usual = str(torch.get_default_dtype()).removeprefix("torch."), str(dtype).removeprefix("torch.")
            self.converted.update((name, found) for found in types if found not in usual)
            convert(model, name, dtype)

        loaded.names["in_type"] = noting
        return loaded

    def complete(self, plan: Plan, program: Program, models: Models) -> None:
        """Give lazy layers their sizes; raise SpecError (GS273) for models that act on gradients themselves."""
        refuse_reducers({name: find_reducers(model) for name, model in models.items()}, plan.spec)
        give_sizes(models, program, plan.spec, self.setting, Batches.of(plan))

    def load_weights(self, model: nn.Module, name: str, path: str) -> None:
        """Read the weights of a model from a file."""
        load_weights(model, name, path)

    def _describe_converted(self) -> Iterator[str]:
        """Yield a sentence for every class whose parameters were converted."""
        wanted = str(self.setting.dtype).removeprefix("torch.")
        for name, found in self.converted.items():
            way = 'build(..., dtype="float64")' if found == "float64" else f"precision: {{compute: {found}}}"
            does = "trains in it" if found == "float64" else "computes in it, on weights of float32"
            yield f"the class of '{name}' makes its parameters in {found}; they become {wanted}. `{way}` {does}"

    def observe_batch(self, plan: Plan, program: Program, models: Models, batch: int) -> RunObservation:
        """Run a program of forwards at one batch size and its neighbour."""
        watch = Watch()
        seen: dict[int, dict[str, Signature]] = {}
        for size in (batch, find_neighbour(batch)):
            inputs = sample_inputs(program, {"batch": size}, self.setting.device, self.setting.dtype)
            found = TrialResult()
            if inputs is not None:  # they have no other free sizes
                trial = Trial.of(load_program(program, models), plan.spec, models, self.setting)
                found = run_dry(replace(trial, inputs=inputs, around=watch.over))
            if found.problems:
                raise StepError(found.problems, plan.spec.texts())
            seen[size] = {
                name: (tuple(each.shape), str(each.dtype).removeprefix("torch."))
                for outputs in reversed([*found.outputs.values()])  # the first function that has a result counts
                for name, each in outputs.items()
                if isinstance(each, torch.Tensor)
            }
        return RunObservation(
            types=find_types(seen, "batch"),
            ran=frozenset(watch.ran),
            drawing=frozenset(watch.drawing),
            recomputing=frozenset(watch.recomputing),
            redrawing=frozenset(watch.redrawing),
            notes=tuple(self._describe_converted()),
        )

    def has_buffers(self, model: nn.Module) -> bool:
        """Return whether a model has buffers."""
        return any(True for _ in model.buffers())

    def is_coupled(self, model: nn.Module) -> bool:
        """Return whether a model normalizes over the batch in training."""
        return any(is_batch_norm(each) for each in model.modules())

    def has_layer(self, model: nn.Module, path: str) -> bool:
        """Return whether a model has a module at a path."""
        return path in dict(model.named_modules())

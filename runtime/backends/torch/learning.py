"""Learning: user classes are run once without training, and the plan is compiled again with what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import nn

from compiler import Plan
from compiler.ir.program import Program
from runtime.backends.torch.compat import is_batch_norm
from runtime.backends.torch.dryrun import Findings, Trial, run_dry
from runtime.backends.torch.emission.dialect import TORCH
from runtime.backends.torch.execution import call_checked, load_module
from runtime.backends.torch.library.modules import parameter_types
from runtime.backends.torch.library.weights import load_weights
from runtime.backends.torch.observation import Watch, find_types
from runtime.backends.torch.reducers import find_reducers
from runtime.backends.torch.setting import Setting
from runtime.backends.torch.sizing import give_sizes
from runtime.backends.torch.tensors import sample_inputs
from runtime.codegen.module import emit_module
from runtime.engine import observe
from runtime.engine.batch_sizes import Batches, find_neighbour
from runtime.engine.observe import Observer, Sight, find_forwards
from runtime.engine.replicas import refuse_reducers
from runtime.engine.weights import find_late, find_rounds, load_late, place_files
from runtime.step import StepError

Models: TypeAlias = Mapping[str, nn.Module]
Learned: TypeAlias = observe.Learned[nn.Module]


def learn(plan: Plan, setting: Setting) -> Learned:
    """Observe user classes, and layers behind them in as many rounds as it takes; nothing to see: the plan as it is.

    Raises SpecError: GS206 for a declared trait that is not true, StepError for a forward that fails.
    """
    return observe.learn(plan, setting.given, TorchObserver(setting=setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObserver(Observer[nn.Module]):
    """Makes models of PyTorch, and sees what they do in dry runs at two batch sizes."""

    setting: Setting
    converted: dict[str, str] = field(default_factory=dict[str, str])
    """Class -> the type in which it makes its parameters, where that is none of the usual ones."""

    def make(self, plan: Plan, known: frozenset[str], given: Models) -> Models:
        """Return the known models; lazy layers are given their sizes before likenesses are copied from them."""
        setting = self.setting
        for names in find_rounds(plan.program.models, known):
            program = find_forwards(plan.program, names)
            loaded = load_module(emit_module(program, TORCH, provided=given), program)
            late = find_late(program, given)
            place_files(loaded, setting.weights, late)
            if "in_type" in loaded.names:
                loaded.names["in_type"] = self._noting(loaded.names["in_type"])
            given = call_checked(loaded, plan.spec, "make_models", setting.seed, setting.device, setting.dtype, given)
            refuse_reducers({name: find_reducers(model) for name, model in given.items()}, plan.spec)
            give_sizes(given, program, plan.spec, setting, Batches.of(plan))
            load_late(load_weights, given, setting.weights, late, plan.spec)
        return given

    def _noting(self, convert: Callable[..., None]) -> Callable[..., None]:
        """Return the library's ``in_type``, noting the models whose parameters were made in another type on purpose."""

        def noting(model: nn.Module, name: str, dtype: torch.dtype) -> None:
            """Convert a model."""
            types = parameter_types(model).values() if isinstance(model, nn.Module) else ()
            usual = str(torch.get_default_dtype()).removeprefix("torch."), str(dtype).removeprefix("torch.")
            self.converted.update((name, found) for found in types if found not in usual)
            convert(model, name, dtype)

        return noting

    def _tell_converted(self) -> Iterator[str]:
        """Yield a sentence for every class whose parameters were converted."""
        wanted = str(self.setting.dtype).removeprefix("torch.")
        for name, found in self.converted.items():
            way = 'build(..., dtype="float64")' if found == "float64" else f"precision: {{compute: {found}}}"
            does = "trains in it" if found == "float64" else "computes in it, on weights of float32"
            yield f"the class of '{name}' makes its parameters in {found}; they become {wanted}. `{way}` {does}"

    def look(self, plan: Plan, program: Program, models: Models) -> Sight:
        """Run a program of forwards alone; raise StepError where it fails. Nothing is changed by it."""
        return Batches.of(plan).attempt(lambda size: self._look(plan, program, models, size))

    def _look(self, plan: Plan, program: Program, models: Models, batch: int) -> Sight:
        """Run a program of forwards at one batch size and its neighbour."""
        watch = Watch()
        seen: dict[int, Findings] = {}
        for size in (batch, find_neighbour(batch)):
            seen[size] = self._run(plan, program, models, watch, size)
            if seen[size].problems:
                raise StepError(seen[size].problems, plan.spec.texts())
        types = find_types({size: _merge(each) for size, each in seen.items()}, "batch")
        return Sight(
            types=types,
            ran=frozenset(watch.ran),
            drawing=frozenset(watch.drawing),
            recomputing=frozenset(watch.recomputing),
            redrawing=frozenset(watch.redrawing),
            notes=tuple(self._tell_converted()),
        )

    def _run(self, plan: Plan, program: Program, models: Models, watch: Watch, size: int) -> Findings:
        """Run the forwards of a program at one batch size; nothing where the inputs have other free sizes."""
        inputs = sample_inputs(program, {"batch": size}, self.setting.device, self.setting.dtype)
        if inputs is None:
            return Findings()
        loaded = load_module(emit_module(program, TORCH, provided=models), program)
        trial = Trial.of(loaded, plan.spec, models, self.setting)
        return run_dry(replace(trial, inputs=inputs, around=watch.over))

    def has_buffers(self, model: nn.Module) -> bool:
        """Return whether a model has buffers."""
        return any(True for _ in model.buffers())

    def is_coupled(self, model: nn.Module) -> bool:
        """Return whether a model normalises over the batch in training."""
        return any(is_batch_norm(each) for each in model.modules())


def _merge(findings: Findings) -> dict[str, object]:
    """Return all results of a run by name; the first function that has one counts."""
    merged: dict[str, object] = {}
    for outputs in findings.outputs.values():
        for name, value in outputs.items():
            merged.setdefault(name, value)
    return merged

"""Learning: user classes are run once without training, and the plan is compiled again with what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from torch import nn

from compiler import Plan
from compiler.program import Program
from runtime.backends.torch.compat import is_batch_norm
from runtime.backends.torch.dryrun import BATCH, Findings, Trial, run_dry
from runtime.backends.torch.emission.dialect import TORCH
from runtime.backends.torch.execution import call_checked, load_module
from runtime.backends.torch.library.weights import load_weights
from runtime.backends.torch.observation import Watch, find_types
from runtime.backends.torch.setting import Setting
from runtime.backends.torch.sizing import give_sizes
from runtime.backends.torch.tensors import sample_inputs
from runtime.building import learning
from runtime.building.forwards import find_forwards
from runtime.building.learning import Observer, Sight
from runtime.building.weights import find_late, find_rounds, load_late, place_files
from runtime.emission.module import emit_module
from runtime.step import StepError

Models: TypeAlias = Mapping[str, nn.Module]
Learned: TypeAlias = learning.Learned[nn.Module]


def learn(plan: Plan, setting: Setting) -> Learned:
    """Observe user classes, and layers behind them in as many rounds as it takes; nothing to see: the plan as it is.

    Raises SpecError: GS206 for a declared trait that is not true, StepError for a forward that fails.
    """
    return learning.learn(plan, setting.given, TorchObserver(setting=setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchObserver(Observer[nn.Module]):
    """Makes models of PyTorch, and sees what they do in dry runs at two batch sizes."""

    setting: Setting
    sizes: tuple[int, ...] = field(default=(BATCH, BATCH + 1))

    def make(self, plan: Plan, known: frozenset[str], given: Models) -> Models:
        """Return the known models; lazy layers are given their sizes before likenesses are copied from them."""
        setting = self.setting
        for names in find_rounds(plan.program.models, known):
            program = find_forwards(plan.program, names)
            loaded = load_module(emit_module(program, TORCH, provided=given), program)
            late = find_late(program, given)
            place_files(loaded, setting.weights, late)
            given = call_checked(loaded, plan.spec, "make_models", setting.seed, setting.device, setting.dtype, given)
            give_sizes(given, program, plan.spec, setting)
            load_late(load_weights, given, setting.weights, late, plan.spec)
        return given

    def look(self, plan: Plan, program: Program, models: Models) -> Sight:
        """Run a program of forwards alone; raise StepError where it fails. Nothing is changed by it."""
        watch = Watch()
        seen: dict[int, Findings] = {}
        for size in self.sizes:
            seen[size] = self._run(plan, program, models, watch, size)
            if seen[size].problems:
                raise StepError(seen[size].problems, plan.spec.texts())
        types = find_types({size: _merge(each) for size, each in seen.items()}, "batch")
        return Sight(types=types, ran=frozenset(watch.ran), drawing=frozenset(watch.drawing))

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

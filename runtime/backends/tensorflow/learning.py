"""Learning: user classes are traced without training, and the plan is compiled again with what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from compiler import OwnTerms, Plan
from compiler.ir.program import Program
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.backends.tensorflow.emission.dialect import TENSORFLOW
from runtime.backends.tensorflow.execution import Loaded, call_checked, diagnose, load_module
from runtime.backends.tensorflow.library.weights import load_weights
from runtime.backends.tensorflow.making import find_other_types, find_strangers
from runtime.backends.tensorflow.naming import buffers
from runtime.backends.tensorflow.observation import Watch, find_types, is_batch_coupled, merge, trace
from runtime.backends.tensorflow.reducers import find_reducers
from runtime.backends.tensorflow.setting import Setting
from runtime.backends.tensorflow.sizing import give_variables
from runtime.backends.tensorflow.tensors import specify_inputs
from runtime.backends.tensorflow.terms import find_terms, find_unknown_terms
from runtime.backends.tensorflow.untouched import traced
from runtime.codegen.module import emit_module
from runtime.codegen.resources import find_functions, find_inputs
from runtime.engine import observe
from runtime.engine.batch_sizes import Batches, find_neighbour
from runtime.engine.observe import Observer, Sight, find_forwards
from runtime.engine.recomputed import find_checkpoints
from runtime.engine.replicas import refuse_reducers
from runtime.engine.weights import find_late, find_rounds, load_late, place_files
from runtime.step import StepError

Models: TypeAlias = Mapping[str, Any]
Learned: TypeAlias = observe.Learned[Any]


def learn(plan: Plan, setting: Setting) -> Learned:
    """Observe user classes, and layers behind them in as many rounds as it takes; nothing to see: the plan as it is.

    Raises SpecError: GS206 for a declared trait that is not true, StepError for a forward that fails.
    """
    return observe.learn(plan, setting.given, TensorFlowObserver(setting=setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFlowObserver(Observer[Any]):
    """Makes models of TensorFlow, and sees what they do in graphs for two batch sizes."""

    setting: Setting

    def make(self, plan: Plan, known: frozenset[str], given: Models) -> Models:
        """Return the known models; those that are open get their variables before likenesses are copied from them."""
        setting = self.setting
        for names in find_rounds(plan.program.models, known):
            program = find_forwards(plan.program, names)
            loaded = load_module(emit_module(program, TENSORFLOW, provided=given), program)
            late = find_late(program, given)
            place_files(loaded, setting.weights, late)
            given = call_checked(loaded, plan.spec, "make_models", setting.seed, setting.device, setting.dtype, given)
            _refuse(find_strangers(given, plan.spec), plan)
            _refuse(find_other_types(given, setting.dtype, plan.spec), plan)
            give_variables(given, program, plan.spec, setting, Batches.of(plan))
            refuse_reducers({name: find_reducers(model) for name, model in given.items()}, plan.spec)
            _refuse(find_other_types(given, setting.dtype, plan.spec), plan)
            load_late(load_weights, given, setting.weights, late, plan.spec)
        return given

    def look(self, plan: Plan, program: Program, models: Models) -> Sight:
        """Trace a program of forwards alone; raise StepError where that fails."""
        return Batches.of(plan).attempt(lambda size: self._look(plan, program, models, size))

    def _look(self, plan: Plan, program: Program, models: Models, batch: int) -> Sight:
        """Trace a program of forwards at one batch size and its neighbour."""
        watch = Watch(models=models)
        loaded = load_module(emit_module(program, TENSORFLOW, provided=models), program)
        seen = {size: self._trace(plan, loaded, models, watch, size) for size in (batch, find_neighbour(batch))}
        _refuse(find_unknown_terms(models, plan.program, plan.spec), plan)
        return Sight(
            types=find_types(seen, "batch"),
            ran=frozenset(watch.ran),
            drawing=frozenset(watch.drawing),
            recomputing=frozenset(watch.recomputing),
            redrawing=frozenset(watch.redrawing | watch.unkeyed & find_checkpoints(program)),
            notes=tuple(watch.notes()),
        )

    def _trace(self, plan: Plan, loaded: Loaded, models: Models, watch: Watch, size: int) -> dict[str, object]:
        """Return all results at one batch size; nothing where the inputs have other free sizes."""
        program, setting = loaded.program, self.setting
        specs = specify_inputs(program, {"batch": size}, setting.dtype)
        if specs is None:
            return {}
        call_checked(loaded, plan.spec, "build", setting.seed, setting.device, setting.dtype, models)
        call = loaded.names.get("call_model")
        if call is not None and not watch.ran:
            loaded.names["call_model"] = watch.watched(call)
        with traced(setting.seed):
            return merge(self._outputs(plan, loaded, specs))

    def _outputs(self, plan: Plan, loaded: Loaded, specs: Mapping[str, Any]) -> list[Mapping[str, object]]:
        """Return the results of all functions; raise StepError with every one that fails."""
        found, problems = list[Mapping[str, object]](), list[Diagnostic]()
        for function in find_functions(loaded.program):
            inputs = {entry.name: specs[entry.name] for entry in find_inputs(loaded.program, function)}
            try:
                found.append(trace(loaded.names[loaded.emitted.names.function(function.name)], inputs))
            except Exception as error:
                problems.append(diagnose(error, loaded, plan.spec))
        if problems:
            raise StepError(tuple(dict.fromkeys(problems)), plan.spec.texts())
        return found

    def has_buffers(self, model: Any) -> bool:
        """Return whether a model has variables that no gradient trains."""
        return bool(buffers(model))

    def is_coupled(self, model: Any) -> bool:
        """Return whether a model normalises over the batch in training."""
        return is_batch_coupled(model)

    def find_terms(self, model: Any) -> OwnTerms:
        """Return the penalties and constraints of the layers of Keras in a model."""
        return find_terms(model)


def _refuse(problems: Any, plan: Plan) -> None:
    """Raise SpecError with some problems, where there are any."""
    found = tuple(problems)
    if found:
        raise SpecError(found, plan.spec.texts())

"""Variables of open models: a first call makes them, and leaves no other trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.emission.dialect import TENSORFLOW
from runtime.backends.tensorflow.execution import diagnose, load_module
from runtime.backends.tensorflow.library.modules import call_model, made_in
from runtime.backends.tensorflow.making import is_open, is_unbuilt
from runtime.backends.tensorflow.observation import call
from runtime.backends.tensorflow.precision import computing
from runtime.backends.tensorflow.setting import Setting
from runtime.backends.tensorflow.tensors import sample_inputs
from runtime.backends.tensorflow.untouched import untouched, unwritten
from runtime.codegen.module import emit_module
from runtime.codegen.resources import find_functions, find_inputs
from runtime.engine.batch_sizes import Batches
from runtime.engine.load import find_span
from runtime.engine.observe import evaluating
from runtime.step import StepError


def give_variables(
    models: Mapping[str, Any], program: Program, spec: GraphSpec, setting: Setting, batches: Batches
) -> None:
    """Call the models really, in evaluation, so that those which are open make their variables.

    Raises StepError: GS214 where the inputs have sizes nobody knows, GS210 and GS211 where a call fails.
    """
    called = {model.name for model in program.models if model.kind == "class"}
    waiting = [name for name, model in models.items() if name in called and is_open(model)]
    if not waiting:
        return
    inputs = sample_inputs(program, {"batch": batches.sizes[0]}, setting.dtype)

    def call_at(size: int) -> None:
        """Call the models with batches of a size."""
        sized = sample_inputs(program, {"batch": size}, setting.dtype) or {}
        with untouched(setting.seed), unwritten(models):
            _call(models, evaluating(program), spec, setting, sized)

    if inputs is not None:
        batches.attempt(call_at)
    unbuilt = [name for name in waiting if is_unbuilt(models[name])] if inputs is None else []
    if unbuilt:
        message = f"model '{unbuilt[0]}' makes its variables when it is called, and inputs are of unknown shape"
        help = "declare the shapes of all inputs, with `batch` as the only free size"
        found = Diagnostic(code="GS214", message=message, span=find_span(spec, unbuilt[0]), help=help)
        raise StepError([found], spec.texts())


def _call(
    models: Mapping[str, Any], program: Program, spec: GraphSpec, setting: Setting, inputs: Mapping[str, Any]
) -> None:
    """Call every function of a program once, as Python, on the models themselves."""
    loaded = load_module(emit_module(program, TENSORFLOW, provided=models), program)
    loaded.names["call_model"] = _making(models, program, setting)
    try:
        loaded.call("build", setting.seed, setting.device, setting.dtype, models)
        for function in find_functions(program):
            given = {entry.name: inputs[entry.name] for entry in find_inputs(program, function)}
            call(loaded.names[loaded.emitted.names.function(function.name)], given, setting.device)
    except Exception as error:
        found = diagnose(error, loaded, spec)
    else:
        return
    raise StepError([found], spec.texts())


def _making(models: Mapping[str, Any], program: Program, setting: Setting) -> Callable[..., Any]:
    """Return the call of a user's model, in which new layers of Keras get the types of that model.

    A given model computes as it is written.
    """
    own = [each for each in program.models if each.name in models and each.name not in setting.given]
    types = {id(models[each.name]): computing(each.compute) for each in own}

    def called(model: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a model."""
        with made_in(setting.dtype, types.get(id(model))):
            return call_model(model, *args, **kwargs)

    return called

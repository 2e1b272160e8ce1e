"""Sizes of lazy layers: a first call gives them, and must leave no other trace on the models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.compat import quiet
from runtime.backends.torch.emission.dialect import TORCH
from runtime.backends.torch.execution import diagnose, load_module
from runtime.backends.torch.making import has_lazy_layers
from runtime.backends.torch.setting import Setting
from runtime.backends.torch.tensors import sample_inputs
from runtime.backends.torch.untouched import untouched, unwritten
from runtime.codegen.module import emit_module
from runtime.codegen.resources import find_functions, find_inputs
from runtime.engine.batch_sizes import Batches
from runtime.engine.load import find_span
from runtime.engine.observe import evaluating
from runtime.step import StepError


def give_sizes(
    models: Mapping[str, nn.Module], program: Program, spec: GraphSpec, setting: Setting, batches: Batches
) -> None:
    """Call the models really, in evaluation, so that lazy layers take the sizes of their inputs.

    Raises StepError: GS214 where the inputs have sizes nobody knows, GS210 and GS211 where a call fails.
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
            _call(models, evaluating(program), spec, setting, sized)

    batches.attempt(call_at)


def _call(
    models: Mapping[str, nn.Module],
    program: Program,
    spec: GraphSpec,
    setting: Setting,
    inputs: Mapping[str, torch.Tensor],
) -> None:
    """Call every function of a program once, on the models themselves."""
    emitted = emit_module(program, TORCH, provided=models)
    loaded = load_module(emitted, program)
    try:
        loaded.call("build", setting.seed, setting.device, setting.dtype, models)
        for function in find_functions(program):
            given = {entry.name: inputs[entry.name] for entry in find_inputs(program, function)}
            loaded.start(function.mode)
            loaded.call(emitted.names.function(function.name), given)
    except Exception as error:
        found = diagnose(error, loaded, spec)
        raise StepError([found], spec.texts()) from None


@contextmanager
def _kept(models: Mapping[str, nn.Module]) -> Iterator[None]:
    """Restore on the way out what a call changes beside sizes: whether modules are in training."""
    modules = [module for model in models.values() for module in model.modules()]
    training = [module.training for module in modules]
    try:
        yield
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode

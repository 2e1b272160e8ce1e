"""Execution of emitted modules under PyTorch, and how their errors are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.messages import find_unused, interpret
from runtime.codegen.module import Emitted
from runtime.engine import errors, load

Loaded: TypeAlias = load.Loaded[Any]
"""An executed module, whose globals only PyTorch knows the types of."""


class TorchErrors(errors.Framework):
    """What is particular to PyTorch where an error of a step is told."""

    def describe(self, value: object) -> str | None:
        """Return type and shape of a tensor, ``float32 [8, 2]``; None for what is none."""
        is_tensor = isinstance(value, torch.Tensor)
        return f"{value.dtype} {list(value.shape)}".replace("torch.", "") if is_tensor else None

    def interpret(self, error: BaseException) -> tuple[str, tuple[str, ...], str]:
        """Return message, notes and help of an operation's error; torch's own words where there are no better ones."""
        return interpret(error)

    def find_unused(self, error: BaseException, loss: object, models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters that a loss does not reach, where that is what a gradient failed on."""
        is_unused = "not have been used in the graph" in str(error)
        return find_unused(loss, models) if is_unused and isinstance(loss, torch.Tensor) else ()

    def name_parameters(self, parameters: Iterable[object], models: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of some parameters of models, as ``model.parameter``."""
        wanted = {id(each) for each in parameters}
        named = ((model, name, each) for model, made in models.items() for name, each in made.named_parameters())
        return tuple(f"{model}.{name}" for model, name, each in named if id(each) in wanted)


ERRORS = TorchErrors()


def load_module(emitted: Emitted, program: Program) -> Loaded:
    """Execute an emitted module and return it; its text is registered so that tracebacks can show it."""
    return load.load_module(emitted, program)


def call_checked(load: Loaded, spec: GraphSpec, function: str, *arguments: object) -> Any:
    """Call one of the module's functions; raise StepError with its place in the spec where it fails."""
    return errors.call_checked(load, spec, ERRORS, function, *arguments)


def diagnose(error: Exception, load: Loaded, spec: GraphSpec) -> Diagnostic:
    """Return what to tell the user of an error raised inside the emitted module."""
    return errors.diagnose(error, load, spec, ERRORS)

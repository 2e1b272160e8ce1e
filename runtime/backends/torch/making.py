"""Making of models: given ones checked, parameters that models share, layers that wait for their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from compiler.program import Program
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from runtime.backends.torch.library.modules import parameter_types
from runtime.building import types, users


def check_given(given: Mapping[str, object], program: Program, spec: GraphSpec) -> dict[str, nn.Module]:
    """Return the given models; raise SpecError (GS208) for names the spec lacks and for what is no module."""
    return users.check_given(given, program, spec, nn.Module, "a torch.nn.Module")


def find_other_types(models: Mapping[str, nn.Module], dtype: torch.dtype, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model with parameters that the step cannot train as they are."""
    found = {name: parameter_types(model) for name, model in models.items()}
    return types.find_other_types(found, str(dtype).removeprefix("torch."), spec)


def find_undeclared_ties(models: Mapping[str, nn.Module], spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS213) for every two models that share a parameter the spec does not say they share."""
    parameters = {name: dict(model.named_parameters()) for name, model in models.items()}
    return users.find_undeclared_ties(parameters, spec)


def has_lazy_layers(model: nn.Module) -> bool:
    """Return whether some parameter or buffer of a model waits for its first input to know its size."""
    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))

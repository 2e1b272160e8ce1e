"""Making of models: given ones checked, parameters that models share, layers that wait for their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.library.modules import parameter_types
from runtime.backends.torch.reducers import find_modules
from runtime.engine import user_models
from runtime.engine import user_models as users


def check_given(given: Mapping[str, object], program: Program, spec: GraphSpec) -> dict[str, nn.Module]:
    """Return the given models; raise SpecError (GS208) for names the spec lacks and for what is no module."""
    return users.check_given(given, program, spec, nn.Module, "a torch.nn.Module")


def find_other_types(models: Mapping[str, nn.Module], dtype: torch.dtype, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model with parameters that the step cannot train as they are."""
    found = {name: parameter_types(model) for name, model in models.items()}
    return user_models.find_other_types(found, str(dtype).removeprefix("torch."), spec)


def find_undeclared_ties(models: Mapping[str, nn.Module], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS213) for every two models that share memory in a way the spec does not say."""
    return users.find_undeclared_ties({name: _find_memory(model) for name, model in models.items()}, program, spec)


def _find_memory(model: nn.Module) -> users.Memory:
    """Return where the parameters and buffers of a model are."""
    parts = [(path, part) for path, part in find_modules(model) if path]
    inside = ((f"{path}.{name}", each) for path, part in parts for name, each in part.named_parameters(recurse=False))
    parameters = _find_storages(model.named_parameters(remove_duplicate=False))
    hidden = {name: storage for name, storage in _find_storages(inside).items() if name not in parameters}
    return users.Memory(parameters=parameters, hidden=hidden, buffers=_find_storages(model.named_buffers()))


def _find_storages(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, object]:
    """Return what tells the memory of tensors apart, by name: tensors that begin at one place share it."""
    return {name: _find_storage(tensor) for name, tensor in named}


def _find_storage(tensor: torch.Tensor) -> object:
    """Return where the memory of a tensor begins; of one that has none, like one that waits for its size, itself."""
    if is_lazy(tensor) or tensor.is_meta or not tensor.numel() or type(tensor.data) is not torch.Tensor:
        return id(tensor)
    return tensor.device, tensor.data_ptr()


def has_lazy_layers(model: nn.Module) -> bool:
    """Return whether some parameter or buffer of a model waits for its first input to know its size."""
    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))

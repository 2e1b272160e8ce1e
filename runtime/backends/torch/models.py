"""Making of models: given ones checked, parameters that models share, layers that wait for their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.parameter import is_lazy

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.torch.library.modules import parameter_types
from runtime.engine import user_models as users
from runtime.engine.replicas import DECLARE, Reducer

PACKAGES = ("torch", "apex", "fairscale", "deepspeed")
INSIDE = f"pass the module inside, `{{}}.module`; {DECLARE}"
BEFORE = "pass the module as it was before; shards are declared in the spec, by `kind: sharded` under `parallel`"
REMEDIES: Mapping[str, tuple[str, str]] = {
    "DistributedDataParallel": ("is wrapped by DistributedDataParallel", INSIDE),
    "DataParallel": ("is wrapped by DataParallel", INSIDE),
    "FullyShardedDataParallel": ("is wrapped by FullyShardedDataParallel", BEFORE),
    "DeepSpeedEngine": ("is a DeepSpeedEngine", INSIDE),
    "FSDPModule": ("was given to `fully_shard`", BEFORE),
    "DDP": ("was given to `replicate`", f"pass the module as it was before; {DECLARE}"),
}
"""Classes of the packages above, among the bases of a module: what is said of it, and the remedy."""
WHY = "its replicas are made equal inside `loss.backward()`, which a step does not call, so they would drift apart"


def find_reducers(model: nn.Module) -> Iterator[Reducer]:
    """Yield every part of a module that acts on gradients, outermost first.

    Classes are known by name: importing those of ``torch.distributed`` would take a second.
    """
    for path, module in find_modules(model):
        bases = [each.__name__ for each in type(module).__mro__ if each.__module__.partition(".")[0] in PACKAGES]
        for what, remedy in (REMEDIES[each] for each in bases if each in REMEDIES):
            at = f": its part '{path}' {what}" if path else f" {what}"
            yield Reducer(what=at, why=WHY, remedy=remedy.format(f"net.{path}" if path else "net"))
    for name, parameter in model.named_parameters():
        if "DTensor" in (type(parameter).__name__, type(parameter.data).__name__):
            what = f": its parameter '{name}' is spread over processes (a DTensor)"
            yield Reducer(what=what, why="a step computes with whole parameters in one process", remedy=BEFORE)
        hook = find_late_hook(parameter)
        if hook:
            what = f": its parameter '{name}' has a {hook}"
            remedy = "remove it: what it does to gradients is a `transform`, and its optimizer is that of the `update`"
            yield Reducer(what=what, why="a step takes gradients as values and never calls it", remedy=remedy)


def find_late_hook(parameter: nn.Parameter) -> str:
    """Return what hook of a parameter only ``backward()`` calls; empty where it has none.

    Torch shows the hooks of a node to one that is added: it shares their dictionary.
    """
    if parameter._post_accumulate_grad_hooks:
        return "post-accumulate-grad hook"
    if not parameter.requires_grad or is_lazy(parameter):
        return ""
    node = get_gradient_edge(parameter).node
    added = [add(lambda *_: None) for add in (node.register_hook, node.register_prehook)]
    shared = [handle.hooks_dict_ref() or {} for handle in added]
    for handle in added:
        handle.remove()
    return "hook on its AccumulateGrad node" if any(shared) else ""


def find_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and its parts by path, those in plain lists and attributes too; each once."""
    yield from _find_modules(model, "", set())


def _find_modules(module: nn.Module, path: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and its parts that were not seen."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    parts = [*module.named_children()]
    for name, value in vars(module).items():  # what is not registered: as it is, in a list or in a dictionary
        if isinstance(value, nn.Module):
            parts.append((name, value))
        elif isinstance(value, (list, tuple)):
            parts += [(f"{name}.{at}", each) for at, each in enumerate(value) if isinstance(each, nn.Module)]
        elif isinstance(value, dict) and name != "_modules":
            parts += [(f"{name}.{key}", each) for key, each in value.items() if isinstance(each, nn.Module)]
    for name, part in parts:
        yield from _find_modules(part, f"{path}.{name}" if path else name, seen)


def check_given(given: Mapping[str, object], program: Program, spec: GraphSpec) -> dict[str, nn.Module]:
    """Return the given models; raise SpecError (GS208) for names the spec lacks and for what is no module."""
    return users.check_given(given, program, spec, nn.Module, "a torch.nn.Module")


def find_other_types(models: Mapping[str, nn.Module], dtype: torch.dtype, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model with parameters that the step cannot train as they are."""
    found = {name: parameter_types(model) for name, model in models.items()}
    return users.find_other_types(found, str(dtype).removeprefix("torch."), spec)


def find_undeclared_ties(models: Mapping[str, nn.Module], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS213) for every two models that share memory in a way the spec does not say."""
    memories: dict[str, users.Memory] = {}
    for name, model in models.items():
        parts = [(path, part) for path, part in find_modules(model) if path]
        inside = ((f"{path}.{key}", each) for path, part in parts for key, each in part.named_parameters(recurse=False))
        parameters = _find_storages(model.named_parameters(remove_duplicate=False))
        hidden = {key: storage for key, storage in _find_storages(inside).items() if key not in parameters}
        buffers = _find_storages(model.named_buffers())
        memories[name] = users.Memory(parameters=parameters, hidden=hidden, buffers=buffers)
    return users.find_undeclared_ties(memories, program, spec)


def _find_storages(named: Iterable[tuple[str, torch.Tensor]]) -> dict[str, object]:
    """Return a key of the memory of tensors, by name: tensors that begin at the same address share it.

    One that has no memory, like one that waits for its size, is its own.
    """
    return {
        name: id(tensor)
        if is_lazy(tensor) or tensor.is_meta or not tensor.numel() or type(tensor.data) is not torch.Tensor
        else (tensor.device, tensor.data_ptr())
        for name, tensor in named
    }


def has_lazy_layers(model: nn.Module) -> bool:
    """Return whether some parameter or buffer of a model waits for its first input to know its size."""
    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))

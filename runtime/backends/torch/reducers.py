"""Modules that act on gradients themselves: wrapped for several processes, sharded, or with hooks of ``backward``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from runtime.engine.replicas import NOT_BUILT, Reducer

PACKAGES = ("torch", "apex", "fairscale", "deepspeed")
INSIDE = f"pass the module inside, `{{}}.module`; {NOT_BUILT}"
BEFORE = f"pass the module as it was before; {NOT_BUILT}"
REMEDIES: Mapping[str, tuple[str, str]] = {
    "DistributedDataParallel": ("is wrapped by DistributedDataParallel", INSIDE),
    "DataParallel": ("is wrapped by DataParallel", INSIDE),
    "FullyShardedDataParallel": ("is wrapped by FullyShardedDataParallel", BEFORE),
    "DeepSpeedEngine": ("is a DeepSpeedEngine", INSIDE),
    "FSDPModule": ("was given to `fully_shard`", BEFORE),
    "DDP": ("was given to `replicate`", BEFORE),
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
        if parameter._post_accumulate_grad_hooks:
            what = f": its parameter '{name}' has a post-accumulate-grad hook"
            remedy = "remove it: what it does to gradients is a `transform`, and its optimizer is that of the `update`"
            yield Reducer(what=what, why="a step takes gradients as values and never calls it", remedy=remedy)


def find_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and its parts by path, those in plain lists and attributes too; each once."""
    yield from _find_modules(model, "", set())


def _find_modules(module: nn.Module, path: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    """Yield a module and its parts that were not seen."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield path, module
    for name, part in (*module.named_children(), *_find_hidden(vars(module).items())):
        yield from _find_modules(part, f"{path}.{name}" if path else name, seen)


def _find_hidden(attributes: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules among attributes that are not registered: as they are, in a list or in a dictionary."""
    for name, value in attributes:
        if isinstance(value, nn.Module):
            yield name, value
        elif isinstance(value, (list, tuple)):
            yield from ((f"{name}.{at}", each) for at, each in enumerate(value) if isinstance(each, nn.Module))
        elif isinstance(value, dict) and name != "_modules":
            yield from ((f"{name}.{key}", each) for key, each in value.items() if isinstance(each, nn.Module))

"""Names of models, parameters and optimizers: the variables that the user's frames have for them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import chain, count
from types import ModuleType
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.audit.tensors import Cell, Cells
from runtime.backends.torch.audit.user_lines import frames, variables_of

_OWN = ("self", "cls")
"""What methods call their object, which has a better name further out."""


def find_names(wanted: object) -> Iterator[str]:
    """Yield the variables, attributes and items that the user's frames know an object by, the innermost first."""
    for frame in frames():
        variables = variables_of(frame)
        for scope in (variables, frame.f_globals):
            for name, value in list(scope.items()):
                if value is wanted and not name.startswith("_") and name not in _OWN:
                    yield name
        for name, value in variables.items():
            inner = next((part for part, each in _parts(value) if each is wanted), None)
            if inner is not None:
                yield inner.lstrip(".") if name in _OWN else f"{name}{inner}"


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes and items of an object, with how they are written after its name."""
    match value:
        case type() | ModuleType():
            return
        case nn.Module():
            yield from ((f".{name}", each) for name, each in value.named_modules() if name)
            yield from ((f".{name}", each) for name, each in vars(value).items())
        case dict():
            simple = ((key, each) for key, each in list(value.items())[:200] if isinstance(key, str | int | tuple))
            yield from ((f"[{key!r}]", each) for key, each in simple)
        case list() | tuple():
            yield from ((f"[{index}]", each) for index, each in enumerate(value[:200]))
        case _:
            yield from ((f".{name}", each) for name, each in list(getattr(value, "__dict__", {}).items())[:200])


class Names:
    """The names that were given, each once."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._given: dict[int, tuple[str, weakref.ref[Any]]] = {}
        self._taken: set[str] = set()
        self._everywhere: list[weakref.ref[nn.Module]] | None = None
        self.models: list[weakref.ref[nn.Module]] = []

    def of(self, thing: object) -> str:
        """Return the name of an optimizer or schedule."""
        known = self._given.get(id(thing))
        if known is not None and known[1]() is thing:
            return known[0]
        further = find_names(thing)
        base = next(further, type(thing).__name__)
        numbered = (f"{base}#{n}" for n in count(2))
        name = next(each for each in chain([base], further, numbered) if each not in self._taken)
        self._taken.add(name)
        self._given[id(thing)] = (name, weakref.ref(thing))
        return name

    def add_model(self, model: nn.Module) -> str:
        """Return the name of a model; its parameters and buffers become cells with names."""
        known = self._given.get(id(model))
        if known is not None and known[1]() is model:
            return known[0]
        name = self.of(model)
        self.models.append(weakref.ref(model))
        for inner, tensor in model.named_parameters():
            # What `functional_call` puts in the place of a parameter is none.
            if isinstance(tensor, nn.Parameter):
                self._name(self._cells.add(tensor), name, inner)
        for inner, tensor in model.named_buffers():
            self._name(self._cells.add(tensor, "buffers"), name, inner)
        return name

    def add_part(self, model: nn.Module, part: nn.Module) -> None:
        """Name the parameters of a module that runs within a model and is no submodule of it, as in a plain list."""
        home, name = self.of(model), type(part).__name__
        for each in model.modules():
            for attribute, value in vars(each).items():
                if not attribute.startswith("_"):
                    inner = next((place for place, one in _parts(value) if one is part), "")
                    name = f"{attribute}{inner}" if inner else name
        for inner, tensor in part.named_parameters():
            self._name(self._cells.add(tensor), home, f"{name}.{inner}")

    def complete(self, cell: Cell) -> None:
        """Find the model of a cell that no call has named: among the user's variables, else among all modules."""
        tensor = cell.ref()
        if cell.model or tensor is None:
            return
        for find in (_find_in_frames, self._find_everywhere):
            holders = (
                each for each in find() if any(one is tensor for one in chain(each.parameters(), each.buffers()))
            )
            model = next(holders, None)
            if model is not None:
                self.add_model(model)
                break
        if not cell.model:
            cell.model = next(find_names(tensor), f"tensor#{cell.number}")

    def _find_everywhere(self) -> list[nn.Module]:
        """Return all modules that are no part of another. It takes long, so it is done once."""
        if self._everywhere is None:
            found = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
            inner = {id(child) for module in found for child in module.__dict__.get("_modules", {}).values()}
            roots = [each for each in found if id(each) not in inner and "_modules" in each.__dict__]
            self._everywhere = [weakref.ref(each) for each in roots]
        return [each for each in (ref() for ref in self._everywhere) if each is not None]

    @staticmethod
    def _name(cell: Cell | None, model: str, name: str) -> None:
        if cell is not None and not cell.model:
            cell.model, cell.name = model, name


def _find_in_frames() -> Iterator[nn.Module]:
    """Yield the modules that the user's variables hold, or that are in what they hold."""
    for frame in frames():
        for value in [*variables_of(frame).values(), *frame.f_globals.values()]:
            if isinstance(value, nn.Module):
                yield value
            elif not isinstance(value, torch.Tensor):
                yield from (each for _, each in _parts(value) if isinstance(each, nn.Module))

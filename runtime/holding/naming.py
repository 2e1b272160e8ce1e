"""Names of parameters in a state: the first name that one has, whatever it is an object of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def find_names(models: Mapping[str, Iterable[tuple[str, object]]]) -> dict[int, str]:
    """Return the name of every parameter, by its id: ``<model>.<parameter>``, the first one where it has several."""
    names: dict[int, str] = {}
    for model, parameters in models.items():
        for name, parameter in parameters:
            names.setdefault(id(parameter), f"{model}.{name}")
    return names


def name_slots(parameters: Sequence[object], names: Mapping[int, str]) -> list[str]:
    """Return the names of an optimizer's parameters, without the model's where they are all of one."""
    full = [names[id(parameter)] for parameter in parameters]
    single = len({name.partition(".")[0] for name in full}) == 1
    return [name.partition(".")[2] if single else name for name in full]


def name_tensors(models: Mapping[str, Iterable[tuple[str, T]]]) -> Iterator[tuple[str, T]]:
    """Yield the tensors of models, each under the first name it has: ``models.<model>.<tensor>``."""
    seen: set[int] = set()
    for model, tensors in models.items():
        for name, tensor in tensors:
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"models.{model}.{name}", tensor

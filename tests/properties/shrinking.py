"""Shrink a document that fails to a minimal one: one thing less, as long as it still fails, always in one order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.properties.causality import defined, used

Document = Mapping[str, Any]
Path = tuple[str | int, ...]
TRIES = 2000
KEPT = (("inputs",), ("models",), ("ops",), ("rng",))
"""What stays: the sections, and the portable numbers, which are those that the oracle draws."""


def shrink(document: Document, fails: Callable[[Document], bool], tries: int = TRIES) -> Document:
    """Return a document that fails and of which nothing can be taken away; the best found after ``tries`` tries."""
    candidates, place, in_vain = list(smaller(document)), 0, 0
    for _ in range(tries):
        if in_vain >= len(candidates):
            break
        place %= len(candidates)
        if fails(candidates[place]):
            # What comes next has moved to this place: going on there is faster than beginning anew.
            document, in_vain = candidates[place], 0
            candidates = list(smaller(document))
        else:
            place, in_vain = place + 1, in_vain + 1
    return document


def smaller(document: Document) -> Iterator[Document]:
    """Yield documents with one thing less, the greatest steps first."""
    cuts = [find_dependents(document, [name]) for name in (*document["ops"], *document["models"])]
    for cut in sorted(cuts, key=len, reverse=True):
        if len(cut) < len(document["ops"]) + len(document["models"]):
            yield without_names(document, cut)
    for name, op in document["ops"].items():
        for other in dict.fromkeys([*used(op), *list(document["inputs"])[:1]]):
            yield read_instead(document, name, other)
    yield from _plainer(document)
    for path in find_paths(document):
        if path not in KEPT:
            yield without_path(document, path)


def find_dependents(document: Document, names: list[str]) -> list[str]:
    """Return names of ops and models with all that cannot be without them; ``after`` and ``outputs`` can."""
    found = list(names)
    for name in found:
        gone = {name, *defined(name, document["ops"].get(name, {}))}
        for section in ("ops", "models"):
            for other, one in document[section].items():
                if other not in found and gone & set(find_texts({**one, "after": []})):
                    found.append(other)
    return found


def find_texts(value: Any) -> Iterator[str]:
    """Yield all texts within a value."""
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from find_texts(one)
        case list():
            for one in value:
                yield from find_texts(one)


def without_names(document: Document, names: list[str]) -> Document:
    """Return a document without ops and models, and without their mentions in ``after`` and ``outputs``."""
    gone = {value for name in names for value in (name, *defined(name, document["ops"].get(name, {})))}
    ops = {name: dict(op) for name, op in document["ops"].items() if name not in names}
    for op in ops.values():
        if "after" in op:
            listed = op["after"] if isinstance(op["after"], list) else [op["after"]]
            op["after"] = [one for one in listed if one not in gone]
    models = {name: one for name, one in document["models"].items() if name not in names}
    found = {**document, "models": models, "ops": ops}
    if "outputs" in document:
        found["outputs"] = [one for one in document["outputs"] if one not in gone]
    return found


def read_instead(document: Document, name: str, value: str) -> Document:
    """Return a document without an op, whose readers read another value in its place."""
    bare = without_names(document, [name])
    return {**bare, "ops": {other: _replaced(op, name, value) for other, op in bare["ops"].items()}}


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return new if value == old else value
        case dict():
            return {key: _replaced(one, old, new) for key, one in value.items()}
        case list():
            return [_replaced(one, old, new) for one in value]
        case _:
            return value


def _plainer(document: Document) -> Iterator[Document]:
    """Yield documents in which one model has one layer, or plain descent."""
    size = next((one["shape"][-1] for one in document["inputs"].values() if one.get("shape")), 1)
    plain = {"layers": [{"linear": size}], "optimizer": {"name": "sgd", "lr": 0.1}}
    for name, model in document["models"].items():
        for field in (field for field in plain if field in model and model[field] != plain[field]):
            models = {**document["models"], name: {**model, field: plain[field]}}
            yield {**document, "models": models}


def find_paths(value: Any, before: Path = ()) -> Iterator[Path]:
    """Yield where everything within a value stands, what is outside before what is within it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        yield (*before, key)
        yield from find_paths(one, (*before, key))


def without_path(document: Document, path: Path) -> Document:
    """Return a document without the one thing that stands somewhere."""
    found: Any = copy.deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return found

"""Who comes before whom in a document, so that no ``after`` is written that would close a circle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Ops = Mapping[str, Mapping[str, Any]]


def is_circular(ops: Ops) -> bool:
    """Return whether some op would have to come before itself."""
    before = {name: set(find_predecessors(name, ops)) for name in ops}
    done: set[str] = set()
    while len(done) < len(before):
        ready = [name for name in before if name not in done and before[name] <= done]
        if not ready:
            return True
        done.update(ready)
    return False


def find_predecessors(name: str, ops: Ops) -> Iterator[str]:
    """Yield the ops that come directly before an op: what it uses, ``after``, and the writers of what it follows."""
    op = ops[name]
    owners = {value: other for other, one in ops.items() for value in defined(other, one)}
    yield from (owners[value] for value in used(op) if value in owners)
    yield from (model for model in (op.get("forward"), op.get("adapt")) if "adapt" in ops.get(model, {}))
    yield from as_list(op.get("after", []))
    if isinstance(op.get("every"), str):
        yield op["every"]
    if "ema" in op or "copy" in op:
        yield from _find_followed(name, ops)


def _find_followed(name: str, ops: Ops) -> list[str]:
    """Return the writers of the source of an average or copy that it comes after.

    In an iteration these are the ones in it; where there are none, and outside, all but those of later iterations.
    """
    op = ops[name]
    source, found = op.get("ema", op.get("copy")), list[str]()
    for other, one in ops.items():
        target = one.get("into", other) if "ema" in one or "copy" in one else None
        back = one.get("ema") if "write_back" in one.get("use", {}) and other != name else None
        if source in (*as_list(one.get("update", [])), one.get("forward"), target, back):
            found.append(other)
    mine = find_iterations(op)
    inside = [other for other in found if mine and find_iterations(ops[other])[: len(mine)] == mine]
    return inside or [other for other in found if not _is_later(find_iterations(ops[other]), mine)]


def find_iterations(op: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the iterations that an op belongs to, from the outside in: the op that repeats it, and the number."""
    return [(part["repeat"], part["number"]) for part in op.get("within", ()) if "repeat" in part]


def _is_later(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> bool:
    """Return whether an op of some iterations belongs to a later one than an op of others."""
    apart = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), None)
    return apart is not None and apart[0][0] == apart[1][0] and apart[0][1] > apart[1][1]


def used(op: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that an op mentions."""
    for field in ("inputs", "loss", "gradient", "wrt", "gradients", "like", "grad_outputs", "value"):
        yield from (one for one in as_list(op.get(field, [])) if isinstance(one, str))


def defined(name: str, op: Mapping[str, Any]) -> list[str]:
    """Return the values of an op."""
    listed = as_list(op.get("outputs", [name]))
    return [next(iter(one)) if isinstance(one, dict) else one for one in listed]


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of one."""
    return value if isinstance(value, list) else [value]

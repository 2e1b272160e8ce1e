"""Which forwards are recorded, which weights are frozen, which uses are detached: by the paths of the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.oracle.order import Order

Flags = tuple[bool, bool, frozenset[str]]
"""Recorded, frozen, and the values that are detached."""


def find_flags(function: Mapping) -> dict[str, Flags]:
    """Return the flags of the forwards and functions of a plan; a forward that is not recorded says no more."""
    listed = (one for one in function["instructions"] if one["kind"] in ("forward", "evaluate"))
    return {
        one["op"]: (one["graph"], one["graph"] and one.get("frozen", False), frozenset(one["detached"]))
        for one in listed
    }


def meant_flags(name: str, order: Order) -> Flags:
    """Return the flags that an op has by the definition."""
    paths = {gradient: order.paths.path(gradient) for gradient in order.gradients}
    through = [gradient for gradient, path in paths.items() if name in path]
    wanted = any(order.paths.called(name).intersection(order.paths.describe(one)[1]) for one in through)
    is_forward = hasattr(order.ops[name], "forward")
    return bool(through), is_forward and bool(through) and not wanted, frozenset(_find_cut(name, order, through))


def _find_cut(name: str, order: Order, through: list[str]) -> Iterator[str]:
    """Yield the values with a graph behind them through which no gradient flows into a recorded op."""
    paths = order.paths
    targets = {value for gradient in order.gradients for value in paths.describe(gradient)[2]}
    recorded = frozenset[str]().union(*(paths.path(gradient) for gradient in order.gradients))
    for _, value in order.ops[name].inputs.references() if through else ():
        owner = order.meaning.owner.get(value)
        attached = value in targets or (owner in recorded and not paths._is_blocked(owner))
        if attached and not any(_depends(value, one, order) for one in through):
            yield value


def _depends(value: str, gradient: str, order: Order) -> bool:
    """Return whether a value depends on the targets of a gradient, or is one."""
    _, models, values = order.paths.describe(gradient)
    return value in values or bool(order.paths._between(value, frozenset(models), frozenset(values)))

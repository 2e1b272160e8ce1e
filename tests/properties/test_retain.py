"""Graphs are kept by exactly those gradients of which a later one shares a part of the path."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.oracle.order import Order
from tests.properties.plans import find_updates
from tests.properties.test_order import SEEDS, orders


def find_gradients(function: Mapping) -> dict[str, bool]:
    """Return the gradients of a plan's function in order, and whether each keeps its graph."""
    listed = [one for one in function["instructions"] if one["kind"] == "gradient"]
    updates = find_updates(function)
    return {f"{one['op']}.gradient" if one["op"] in updates else one["op"]: one["retain_graph"] for one in listed}


def find_sharing(taken: list[str], order: Order) -> set[str]:
    """Return the gradients of whose path a later one shares a part."""
    paths = [order.paths.path(name) for name in taken]
    return {name for index, name in enumerate(taken) if any(paths[index] & later for later in paths[index + 1 :])}


@pytest.mark.xdist_group("orders fewest")
def test_a_gradient_keeps_its_graph_iff_a_later_one_shares_its_path():
    kept = 0
    for seed in SEEDS:
        for _, function, order, _ in orders(seed, "fewest"):
            found = find_gradients(function)
            assert {name for name, keeps in found.items() if keeps} == find_sharing(list(found), order), seed
            kept += sum(found.values())
    assert kept > 60

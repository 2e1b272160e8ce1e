"""`plan.graph()`: the step as a graph of networkx says what the plan says."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from compiler import compile_step
from graphspec import load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_graphs_have_what_the_printed_plan_has(path: Path, backend: str) -> None:
    plan = compile_step(load(path), backend)
    functions: Any = [(each.mode, one) for each in plan.program.modes for one in plan.to_json(each.mode)["functions"]]
    assert {one["name"] for _, one in functions} == plan.graphs.keys()
    for mode, function in functions:
        check_graph(plan.graph(mode, function["name"]), function["instructions"])


def check_graph(graph: nx.MultiDiGraph, listed: Any) -> None:
    assert nx.is_directed_acyclic_graph(graph)
    assert all(graph.nodes[before]["position"] < graph.nodes[after]["position"] for before, after in graph.edges())
    for kind in ("forward", "gradient", "apply", "blend", "assign"):
        told = [each for each in listed if each["kind"] == kind]
        found = [data for _, data in graph.nodes(data=True) if data["kind"] == kind]
        assert [each["op"] for each in told] == [data["op"] for data in found]
        for one, data in zip(told, found, strict=True):
            assert set(one.get("writes", ())) <= set(data["writes"])
            assert data["model"] == one.get("model")


def test_versions_of_a_cell_are_written_one_after_the_other() -> None:
    plan = compile_step(load(ROOT / "examples/td3/td3.yaml"))
    for name, step in plan.graphs.items():
        graph = plan.graph(step.mode, name)
        writers: dict[str, list[str]] = {}
        for node, data in graph.nodes(data=True):
            for at in data["writes"]:
                writers.setdefault(at.partition("@")[0], []).append(node)
        for chain in writers.values():
            assert all(nx.has_path(graph, before, after) for before, after in pairwise(chain))


def test_a_deferred_update_has_the_gradient_that_it_waits_for_before_it() -> None:
    """The critic's update of a simultaneous GAN: autograd still needs its weights for the generator's gradient."""
    plan = compile_step(load(ROOT / "examples/simultaneous-gan/simultaneous-gan.yaml"))
    edges = plan.graph().get_edge_data("step_g.gradient", "step_d")
    assert [(data["hazard"], data["through"]) for data in edges.values()] == [("backward-war", ("on_fake",))]
    tape = compile_step(plan.spec, "tensorflow").graph()
    assert not tape.has_edge("step_g.gradient", "step_d")


def test_without_a_name_the_fullest_function_is_taken() -> None:
    plan = compile_step(load(ROOT / "examples/td3/td3.yaml"))
    sizes = [len(graph.sequence) for graph in plan.graphs_of("train").values()]
    assert len(set(sizes)) > 1
    assert len(plan.graph()) == max(sizes)


@pytest.mark.parametrize(("mode", "name"), [("nothing", None), ("train", "eval_step")])
def test_what_there_is_not_is_told(mode: str, name: str | None) -> None:
    plan = compile_step(load(ROOT / "examples/gan-digits/gan-digits.yaml"))
    with pytest.raises(KeyError, match=re.escape(repr(name or mode))):
        plan.graph(mode, name)

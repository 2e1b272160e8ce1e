"""Random steps: the plan against the literal meaning of the document, computed by code that shares nothing with it."""

from __future__ import annotations

import json
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from compiler import Plan, compile_step
from compiler.ir.hazard_table import HazardTable
from compiler.ir.step_graph import StepGraph
from compiler.passes import pipeline
from compiler.passes.hazards import find_hazards
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from tests.compiler.conftest import compiled_document, deferred, graph_of
from tests.compiler.naive import Naive, closure, count_deferred, is_circular, is_legal
from tests.compiler.random_steps import clocked_step, random_step, shuffled
from tests.compiler.replay import find_faults

SEEDS = st.integers(0, 10_000)
BACKENDS = ("torch", "tensorflow")
POLICIES = ("fewest", "listed", "latest", "memory")


def plan_of(document: dict, backend: str = "torch", order: str = "fewest") -> Plan | None:
    """Return the plan of a document, or None where two versions would have to be live at once."""
    try:
        return compiled_document(json.dumps(document) + "\n", backend=backend, order=order)
    except SpecError as error:
        if {one.code for one in error.diagnostics if one.severity == "error"} != {"E-TWO-VERSIONS"}:
            raise
        return None


def constraints_of(plan: Plan, meaning: Naive) -> set[tuple[str, str]]:
    """Return what must precede what, without what clones of buffers made unnecessary in this plan."""
    rigid, soft = meaning.constraints(keeps_cells=plan.program.backend == "torch")
    graph = graph_of(plan)
    found = {(edge.before, edge.after) for edge in graph.edges}
    return rigid | (soft & found if graph.snapshots else soft)


def accesses_of(plan):
    """Return what every node reads and writes, at which versions."""
    return {name: (*node.reads, *node.writes) for name, node in graph_of(plan).nodes.items()}


@settings(max_examples=36)
@given(SEEDS)
def test_versions_are_the_writes_of_the_causal_past(seed):
    document = random_step(seed)
    plan, meaning = plan_of(document), Naive(document)
    nodes = graph_of(plan).nodes if plan else {}
    for name, cells in meaning.versions().items() if plan else ():
        found = {str(read.cell): read.version for read in nodes[name].reads}
        assert {cell: found[cell] for cell in cells} == cells


@settings(max_examples=36)
@given(SEEDS)
def test_paths_are_the_differentiable_ways_from_targets_to_loss(seed):
    document = random_step(seed)
    plan, meaning = plan_of(document), Naive(document)
    paths = graph_of(plan).paths if plan else {}
    assert {name: path.nodes for name, path in paths.items()} == {name: meaning.path(name) for name in paths}
    assert plan is None or set(paths) == set(meaning.gradients())


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=36)
@given(SEEDS)
def test_the_edges_order_exactly_what_must_be_ordered(backend, seed):
    document = random_step(seed)
    plan, meaning = plan_of(document, backend), Naive(document)
    if plan is not None and not graph_of(plan).snapshots:
        found = closure(meaning.items, {(edge.before, edge.after) for edge in graph_of(plan).edges})
        assert found == closure(meaning.items, constraints_of(plan, meaning))


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=36)
@given(SEEDS)
def test_two_versions_are_refused_exactly_where_the_constraints_have_a_circle(backend, seed):
    document = random_step(seed)
    meaning = Naive(document)
    rigid, _ = meaning.constraints(keeps_cells=backend == "torch")
    assert (plan_of(document, backend) is None) == is_circular(meaning.items, rigid)


@pytest.mark.parametrize("order", POLICIES)
@settings(max_examples=24)
@given(SEEDS, st.sampled_from(BACKENDS))
def test_a_replay_of_the_plan_finds_every_version_and_every_kept_cell(order, seed, backend):
    document = random_step(seed)
    plan = plan_of(document, backend, order)
    if plan is not None:
        assert find_faults(plan.to_json()["functions"][0], Naive(document), keeps_cells=backend == "torch") == []


def test_the_replay_finds_faults_in_plans_without_the_hazards_of_pytorch():
    steps = [random_step(seed) for seed in range(60)]
    plans = [(document, plan_of(document, "tensorflow", "listed")) for document in steps]
    faulty = [
        d for d, plan in plans if plan and find_faults(plan.to_json()["functions"][0], Naive(d), keeps_cells=True)
    ]
    assert len(faulty) >= 10


@pytest.mark.parametrize("order", ["fewest", "listed", "memory"])
@settings(max_examples=24)
@given(SEEDS)
def test_deferred_is_what_has_a_predecessor_after_its_own_gradient(order, seed):
    document = random_step(seed)
    plan, meaning = plan_of(document, order=order), Naive(document)
    if plan is not None:
        sequence = list(graph_of(plan).sequence)
        assert deferred(plan) == meaning.deferred(sequence, constraints_of(plan, meaning))


@settings(max_examples=36)
@given(SEEDS)
def test_fewest_defers_as_few_as_the_best_of_all_orders(seed):
    document = random_step(seed, updates=5)
    plan, meaning = plan_of(document), Naive(document)
    if plan is not None:
        assert len(deferred(plan)) == meaning.fewest(constraints_of(plan, meaning))


def test_the_best_of_all_orders_of_gradients_is_the_best_of_all_sequences():
    names = ["u.gradient", "u", "v.gradient", "v", "w.gradient", "w"]
    own = {("u.gradient", "u"), ("v.gradient", "v"), ("w.gradient", "w")}
    for extra in [{("v.gradient", "u"), ("u.gradient", "v")}, {("u", "v"), ("v.gradient", "u")}, {("w", "u.gradient")}]:
        pairs = own | extra
        legal = [s for s in permutations(names) if all(s.index(before) < s.index(after) for before, after in pairs)]
        late = [
            sum(any(s.index(p) > s.index(f"{u}.gradient") for p, q in pairs if q == u) for u in "uvw") for s in legal
        ]
        past = closure(names, pairs)
        orders = [order for order in permutations("uvw") if is_legal(past, order)]
        assert min(count_deferred(past, order) for order in orders) == min(late)


@settings(max_examples=36)
@given(SEEDS)
def test_graphs_are_kept_recorded_and_frozen_exactly_where_a_gradient_needs_it(seed):
    document = random_step(seed)
    plan, meaning = plan_of(document), Naive(document)
    if plan is None:
        return
    graph = graph_of(plan)
    taken = [name for name in graph.sequence if name in graph.paths]
    paths = {name: meaning.path(name) for name in taken}
    kept = {name for index, name in enumerate(taken) if any(paths[name] & paths[later] for later in taken[index + 1 :])}
    assert set(graph.flags.retained) == kept
    assert set(graph.flags.created) == {name for name in taken if any(name in path for path in paths.values())}
    recorded = set[str]().union(*paths.values())
    assert graph.flags.recorded == recorded
    wanted = {
        member for name in taken for member in paths[name] if meaning.items[member].reads & meaning.items[name].cells
    }
    assert graph.flags.frozen == {
        member for member in recorded - wanted if "forward" in document["ops"].get(member, {})
    }


@settings(max_examples=36)
@given(SEEDS, st.integers(0, 99))
def test_another_listing_gives_the_same_versions_deferrals_and_warnings(seed, other):
    document = random_step(seed)
    plan, again = plan_of(document), plan_of(shuffled(document, other))
    assert (plan is None) == (again is None)
    if plan is not None and again is not None:
        first, second = accesses_of(plan), accesses_of(again)
        assert {name: set(each) for name, each in first.items()} == {name: set(each) for name, each in second.items()}
        assert sorted(w.message for w in plan.warnings) == sorted(w.message for w in again.warnings)
        assert len(deferred(plan)) == len(deferred(again))
        assert graph_of(plan).snapshots == graph_of(again).snapshots


@settings(max_examples=24)
@given(SEEDS)
def test_only_the_place_of_writes_and_gradients_depends_on_the_policy(seed):
    document = random_step(seed)
    plans = [plan_of(document, order=order) for order in POLICIES]
    accesses = [accesses_of(plan) for plan in plans if plan is not None]
    assert len(accesses) in (0, len(POLICIES))
    assert all(found == accesses[0] for found in accesses)


@settings(max_examples=36)
@given(SEEDS, st.sampled_from(BACKENDS))
def test_every_set_of_ops_that_fire_together_has_the_versions_and_edges_of_its_own(seed, backend):
    document = clocked_step(seed)
    plan = plan_of(document, backend)
    for function in plan.to_json()["functions"] if plan else ():
        meaning = Naive(document, set(function["active"]))
        graph = graph_of(plan, function["name"])
        assert list(graph.nodes) == list(meaning.items)
        assert find_faults(function, meaning, keeps_cells=backend == "torch") == []
        rigid, soft = meaning.constraints(keeps_cells=backend == "torch")
        found = closure(meaning.items, {(edge.before, edge.after) for edge in graph.edges})
        assert graph.snapshots or found == closure(meaning.items, rigid | soft)


@pytest.mark.parametrize("dropped", [{"war"}, {"backward-war"}, {"buffer-war"}])
def test_without_one_kind_of_edge_some_plan_goes_wrong(monkeypatch, dropped):
    def lame(graph: StepGraph, table: HazardTable) -> StepGraph:
        found = find_hazards(graph, table)
        return replace(found, hazards=tuple(edge for edge in found.hazards if edge.hazard.value not in dropped))

    monkeypatch.setattr(pipeline, "find_hazards", lame)
    documents = [random_step(seed) for seed in range(150)]
    assert any(faults_unverified(document) for document in documents)


def faults_unverified(document: dict) -> list[str]:
    """Return the faults of a plan that no verifier has looked at; none for a step that is refused."""
    try:
        plan = compile_step(load(json.dumps(document) + "\n"), "torch", "listed")
    except SpecError:
        return []
    return find_faults(plan.to_json()["functions"][0], Naive(document), keeps_cells=True)


def test_with_all_edges_those_plans_go_right():
    assert not any(faults_unverified(random_step(seed)) for seed in range(150))

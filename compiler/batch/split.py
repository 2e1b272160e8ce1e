"""The graph of a mode under micro-batches, and which of its nodes run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.expansion import Expansion
from compiler.batch.gathering import Gathering, Unshared, find_crossing
from compiler.batch.losses import find_added
from compiler.batch.placement import PlacementAnalysis, is_gathering
from compiler.batch.roles import find_roles
from compiler.ir.instructions import Forward, Gradient, Instruction
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import Decision, Hazard, find_producers
from compiler.passes.activate import reach
from compiler.passes.order import find_data_ordering, sort_by_data
from compiler.passes.presence import is_made_of
from compiler.types.dimension import TensorType


class SplitGraph(Struct, frozen=True, kw_only=True):
    """A graph with one copy of each batched node per micro-batch, and what to report about it."""

    graph: ModeGraph
    copies: Mapping[str, tuple[str, ...]]
    """Node of the unsplit graph -> what it became."""
    parts: frozenset[str]
    """The nodes that run on a part of the batch."""
    results: Mapping[str, tuple[str, ...]]
    """Node of the unsplit graph -> what it provides there."""
    wholes: Mapping[str, str]
    """Value that is made of one of the unsplit graph, in parts or from parts -> that one."""
    decisions: Mapping[str, Decision]
    """Decisions, by node of the unsplit graph: what runs once although the step is split, and what is added up."""
    coupled: Mapping[str, str]
    """Node that runs per micro-batch -> why the results do not combine to that of the batch."""
    unshared: Mapping[str, Unshared]
    """Node that reads gathered values -> why replicas cannot share it."""

    def find_firing(
        self, firing: Collection[str], returned: Iterable[str], absent: Iterable[str] = ()
    ) -> frozenset[str]:
        """Return the nodes that run, given those that would if the step were not split.

        ``absent`` nodes do not run in this step, and neither does what needs one of their values.
        """
        nodes = self.graph.nodes
        producers = find_producers(nodes.values())
        # copies that nothing uses: a sum of means and sums is added up over the batch by other nodes
        idle, used = set[str](), set[str]()
        for name in reversed(sort_by_data(nodes)):
            node = nodes[name]
            is_pure = name in self.parts and node.provides and not (node.writes or node.is_write)
            if is_pure and used.isdisjoint(node.provides):
                idle.add(name)
            else:
                used.update(use.value for use in node.uses)
        roots = [copy for name in firing for copy in self.copies[name] if copy not in idle]
        whole = set[str]().union(*map(self.results.__getitem__, firing))
        roots += [producers[value] for value in returned if value in whole and value in producers]
        # absent nodes, and those that need one of their values, as shares of absent sums do
        found = set(absent)
        for name in sort_by_data(nodes):
            node = nodes[name]
            needed = (producers.get(use.value) for use in node.uses if not use.optional)
            lacks = not node.is_write and any(maker in found for maker in needed)
            if lacks or is_made_of(node, found, producers):
                found.add(name)
        return reach(roots, nodes, producers, frozenset(found))


def split_graph(
    whole: ModeGraph,
    types: Mapping[str, TensorType],
    returned: Iterable[str],
    runs: Callable[[Instruction], bool],
    count: int,
) -> SplitGraph:
    """Return a graph as ``count`` micro-batches make it, or the replicas of its spec.

    ``returned`` are the values that a step may return; ``runs`` says whether a node runs in the mode.
    """
    crossing = find_crossing(whole.everything, whole.paths) if whole.spec.is_replicated else frozenset[str]()
    analysis = PlacementAnalysis(spec=whole.spec, types=types, crossing=crossing)
    analysis.read(whole.everything)
    recorded = frozenset[str]().union(*(path.nodes for path in whole.paths.values()))
    roles = find_roles(whole.everything, recorded, analysis, whole.models)
    expansion = Expansion(count=count, nodes=whole.everything, analysis=analysis, roles=roles, recorded=recorded)
    everything = expansion.expand(returned)
    # declared and implied edges hold between all copies of two nodes: a successor waits for every copy
    declared = (
        replace(edge, before=before, after=after)
        for edge in whole.ordering
        if edge.hazard is not Hazard.DATA
        for before in expansion.copies[edge.before]
        for after in expansion.copies[edge.after]
    )
    nodes = {name: node for name, node in everything.items() if runs(node)}
    coupled = {name: why for name, why in analysis.coupled.items() if name in roles.split}
    added = find_added(whole.spec)
    decisions: dict[str, Decision] = {}
    for name, node in whole.everything.items():
        if isinstance(node, Forward) and node.train and name in roles.split:
            model = whole.models[node.model]
            if model.batch_coupled and not (model.is_synced and count == 1):
                assumed = " (assumed)" if "batch_coupled" in model.assumed else ""
                coupled[name] = f"'{node.model}' normalizes over the samples that it is given{assumed}"
        if name in roles.merged:
            text = (
                f"{node.label} runs once on the whole batch, and its values are split: it records no graph, and "
                f"{node.called} couples no samples"
            )
            decisions[name] = Decision(code="MERGE", subject=node.op, text=text, node=node.id)
        if isinstance(node, Gradient) and node.op in added and name in roles.split:
            text = f"{node.label} is that of each process on its own rows, and these are added up: `reduce: sum`"
            decisions[name] = Decision(code="ADD", subject=node.op, text=text, node=expansion.copies[name][0])
    unshared: Mapping[str, Unshared] = {}
    if any(is_gathering(node) for node in whole.everything.values()):
        unshared = Gathering(
            nodes=whole.everything, paths=whole.paths, analysis=analysis, split=roles.split, models=whole.models
        ).find_unshared()
    ordering = (*find_data_ordering(everything), *declared)
    return SplitGraph(
        graph=replace(whole, nodes=nodes, everything=everything, ordering=ordering),
        copies=expansion.copies,
        parts=frozenset(name for name, node in everything.items() if node.micro_batch or node.is_replica),
        results={name: node.provides for name, node in whole.everything.items()},
        wholes=expansion.wholes,
        decisions=decisions,
        coupled=coupled,
        unshared=unshared,
    )

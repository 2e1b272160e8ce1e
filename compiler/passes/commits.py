"""Find the verdicts under which each write takes place: those of its group, and of the writes that it follows.

Two updates are in one group iff the same updates happen before their gradients, of those that take part in the step:
they fire, or their windows gather. A group commits together or not at all, and with it everything that follows its
models. The verdicts of a group are combined once, and its writes take place under that one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.digraph import NOTHING, Bits, trim, unite
from compiler.ir.instructions import TOGETHER, AllFinite, CheckFinite, Commit, Instruction, Transform
from compiler.ir.program import window_of
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Use
from compiler.passes.order import data_edges, find_sources, find_writers
from compiler.passes.schedule import is_update

ALWAYS: Commit = ()
"""The condition of a write that takes place regardless of verdicts."""


def find_commits(graph: StepGraph) -> StepGraph:
    """Return the graph with the condition of every write that does not always take place."""
    conditions = Conditions.of(graph)
    found = {name: conditions.find(name) for name, node in graph.nodes.items() if node.is_write}
    combined = [each for each in conditions.combined.values() if each.id not in graph.nodes]
    return replace(
        graph,
        nodes=list_among(graph.nodes, combined),
        ordering=(*graph.ordering, *(edge for each in combined for edge in data_edges(each, graph.producers))),
        commits={name: commit for name, commit in found.items() if commit},
    )


def list_among(nodes: Mapping[str, Instruction], combined: Collection[AllFinite]) -> Mapping[str, Instruction]:
    """Return the nodes with those that combine verdicts, each after the last of these."""
    if not combined:
        return nodes
    listed: dict[str, Instruction] = {}
    missing = {each.id: {*each.verdicts} for each in combined}
    combining = {verdict: each for each in combined for verdict in each.verdicts}
    for name, node in nodes.items():
        listed[name] = node
        for each in (combining[value] for value in node.defines if value in combining):
            missing[each.id].difference_update(node.defines)
            if not missing[each.id]:
                listed[each.id] = each
    return listed


def find_commit_groups(graph: StepGraph) -> Iterable[tuple[Instruction, ...]]:
    """Return the writes of gradients by commit groups; where one says `all`, they are one group."""
    sharing = find_sharing(graph.nodes.values())
    if any(node.overflow == "all" for node in sharing):
        return (sharing,)
    causality = graph.causality
    updates = causality.collect({node.op for node in graph.nodes.values() if takes_part(node)} if sharing else ())
    groups: dict[Bits, list[Instruction]] = {}
    for node in sharing:
        before = NOTHING
        for gradient in find_gradients(graph.nodes, node, graph.producers):
            before = unite(before, causality.meet(gradient, updates))
        groups.setdefault(trim(before), []).append(node)
    return tuple(tuple(group) for group in groups.values())


def find_sharing(nodes: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """Return the writes of gradients that are held together with others, where these fire."""
    return tuple(node for node in nodes if node.verdict and node.overflow in ("", *TOGETHER))


def takes_part(node: Instruction) -> bool:
    """Return whether a node is what an update does with its gradients: it is applied, or its window gathers."""
    return is_update(node) or (node.is_write and node.admission == window_of(node.op))


def find_gradients(
    nodes: Mapping[str, Instruction], write: Instruction, producers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the gradients, as they were taken, that the verdict of a write is about."""
    pending, found, seen = [producers[write.verdict]], dict[str, None](), set[str]()
    while pending:
        node = nodes[pending.pop()]
        if node.id in seen:
            continue
        seen.add(node.id)
        match node:
            case CheckFinite(gradients=sets) | Transform(inputs=sets):
                pending += [producers[value] for value in sets if value in producers]
            case _ if node.derivative is not None:
                found[node.id] = None
            case _:
                pass
    return tuple(found)


class Conditions(Struct, frozen=True, kw_only=True):
    """Finds the conditions of writes: those of the writes of gradients, and of what follows these."""

    graph: StepGraph
    own: Mapping[str, tuple[str, ...]]
    """By write of gradients under verdicts: its own verdict, or that of its group."""
    combined: Mapping[str, AllFinite]
    """By the verdict on a group, what combines it."""
    there: Collection[str]
    givers: Mapping[str, tuple[str, ...]]
    """By verdict, that under which its update is applied."""
    known: dict[str, Commit] = {}

    @classmethod
    def of(cls, graph: StepGraph) -> Conditions:
        """Return the conditions of a graph."""
        groups = find_commit_groups(graph)
        checked = [group for group in groups if graph.scaled or any(node.overflow in TOGETHER for node in group)]
        own: dict[str, tuple[str, ...]] = {}
        combined: dict[str, AllFinite] = {}
        for group in checked:
            verdicts = tuple(dict.fromkeys(node.verdict for node in group))
            if len(verdicts) > 1:
                made = _combine([graph.nodes[graph.producers[each]] for each in verdicts], verdicts)
                combined[made.output], verdicts = made, (made.output,)
            own |= {node.id: verdicts for node in group}
        for node in graph.nodes.values():
            if node.verdict and node.overflow in ("own", "error"):
                own[node.id] = (node.verdict,)
        there = {value for each in graph.nodes.values() for value in each.provides} if own else set[str]()
        givers = {each.verdict: own[name] for name, each in graph.nodes.items() if name in own}
        return cls(graph=graph, own=own, combined=combined, there=there, givers=givers)

    def find(self, name: str) -> Commit:
        """Return the condition of a write: its own, and those of the writes it follows."""
        if name not in self.known:
            node = self.graph.nodes[name]
            gated_by = self.find(node.gated_by) if node.gated_by in self.graph.nodes else ALWAYS
            written = find_sources(node, self.graph.nodes, self.graph.writers)
            # An average or copy does not follow the statistics of forwards.
            followed = dict.fromkeys(writer for _, writer in written if self.graph.nodes[writer].is_write)
            sources = either([self.find(writer) for writer in followed])
            own = (find_own(node, self.own[name], self.there, self.givers),) if name in self.own else ALWAYS
            self.known[name] = both(own, both(gated_by, sources))
        return self.known[name]

    def find_combined(self, verdicts: Collection[str]) -> tuple[AllFinite, ...]:
        """Return what combines those of some verdicts that are about groups."""
        return tuple(each for name, each in self.combined.items() if name in verdicts)


def _combine(checks: Sequence[Instruction], verdicts: tuple[str, ...]) -> AllFinite:
    """Return the node that combines the verdicts of a group."""
    subject = f"{checks[0].key}#group"  # the name of no op
    return AllFinite(
        id=f"{subject}.finite",
        op=checks[0].op,
        label=f"verdict {subject}",
        place=checks[0].place,
        within=tuple(part for part in checks[0].within if all(part in each.within for each in checks)),
        uses=tuple(Use(value=each, differentiable=False) for each in verdicts),
        differentiable=False,
        free_early=True,  # right after the last of the verdicts, before any write that waits for all
        output=f"{subject}.finite",
        verdicts=verdicts,
        updates=tuple(dict.fromkeys(check.op for check in checks)),
    )


def find_own(
    node: Instruction, own: tuple[str, ...], there: Collection[str], givers: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the verdicts of a write, and those under which others give what it shares with them, where these fire."""
    shared = (verdict for each in node.extra_checks if each in there for verdict in givers.get(each, (each,)))
    return tuple(dict.fromkeys((*own, *shared)))


def both(one: Commit, other: Commit) -> Commit:
    """Return the condition that holds where two do."""
    if not one or not other:
        return one or other
    ways = (tuple(dict.fromkeys((*first, *second))) for first in one for second in other)
    return tuple(dict.fromkeys(ways))


def assume(one: Commit, other: Commit) -> Commit:
    """Return what is left of a condition where another holds; a way without verdicts, or no way: it holds too."""
    known = set[str]().union(*other).intersection(*other) if other else set[str]()
    return tuple(tuple(verdict for verdict in way if verdict not in known) for way in one) or ((),)


def either(conditions: list[Commit]) -> Commit:
    """Return the condition that holds where one of several does; nothing to follow: always."""
    if not all(conditions):
        return ALWAYS
    return tuple(dict.fromkeys(way for condition in conditions for way in condition))


def find_conditional_ops(nodes: Mapping[str, Instruction]) -> frozenset[str]:
    """Return the ops whose writes take place only under verdicts in some step, and those of all that follows these."""
    held = {node.op for node in nodes.values() if node.verdict and node.overflow != "apply" and node.id == node.op}
    if not held:
        return frozenset()
    writers = find_writers(nodes.values())
    followers: dict[str, list[Instruction]] = {}
    for node in (node for node in nodes.values() if node.is_write):
        sources = (nodes[name] for _, name in find_sources(node, nodes, writers))
        for op in {node.gated_by, *(source.op for source in sources if source.is_write)}:
            followers.setdefault(op, []).append(node)
    pending = list(held)
    while pending:
        for node in followers.get(pending.pop(), ()):
            fresh = {node.op, node.admission} - held
            held |= fresh
            pending.extend(fresh)
    return frozenset(held)

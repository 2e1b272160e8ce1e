"""Find the verdicts under which each write takes place: those of its group, and of the writes that it follows.

Two updates are in one group iff the same updates happen before their gradients, of those that take part in the step:
they fire, or their windows gather. A group commits together or not at all, and with it everything that follows its
models.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.digraph import NOTHING, Bits, trim, unite
from compiler.ir.instructions import TOGETHER, CheckFinite, Commit, Instruction, Transform
from compiler.ir.program import window_of
from compiler.ir.step_graph import StepGraph
from compiler.passes.order import find_producers, find_sources, find_writers
from compiler.passes.schedule import is_update

ALWAYS: Commit = ()
"""The condition of a write that takes place regardless of verdicts."""


def find_commits(graph: StepGraph) -> StepGraph:
    """Return the graph with the condition of every write that does not always take place."""
    finder = _Finder(graph=graph, own=find_own_conditions(graph))
    found = {name: finder.find(name) for name, node in graph.nodes.items() if node.is_write}
    return replace(graph, commits={name: commit for name, commit in found.items() if commit})


def commit_finder(graph: StepGraph) -> Callable[[str], Commit]:
    """Return a function that finds the condition of an update."""
    return _Finder(graph=graph, own=find_own_conditions(graph)).find


def find_own_conditions(graph: StepGraph) -> Mapping[str, Commit]:
    """Return the condition of every write of gradients that is under verdicts: its own, or those of its group."""
    found: dict[str, tuple[str, ...]] = {}
    for group in find_commit_groups(graph):
        verdicts = tuple(dict.fromkeys(node.verdict for node in group))
        is_checked = graph.scaled or any(node.overflow in TOGETHER for node in group)
        found |= {node.id: verdicts for node in group if is_checked}
    alone = [node for node in graph.nodes.values() if node.verdict and node.overflow in ("own", "error")]
    found |= {node.id: (node.verdict,) for node in alone}
    there = {value for each in graph.nodes.values() for value in each.provides} if found else set[str]()
    givers = {each.verdict: found[name] for name, each in graph.nodes.items() if name in found}
    return {name: (_with_others(graph.nodes[name], found, there, givers),) for name in found}


def _with_others(
    node: Instruction,
    found: Mapping[str, tuple[str, ...]],
    there: Collection[str],
    givers: Mapping[str, tuple[str, ...]],
) -> tuple[str, ...]:
    """Return the verdicts of a write with those under which others give what it shares with them, where these fire."""
    shared = (verdict for each in node.extra_checks if each in there for verdict in (each, *givers.get(each, ())))
    return tuple(dict.fromkeys((*found[node.id], *shared)))


def find_commit_groups(graph: StepGraph) -> Iterable[tuple[Instruction, ...]]:
    """Return the writes of gradients by commit groups; where one says `all`, they are one group."""
    sharing = [node for node in graph.nodes.values() if node.verdict and node.overflow in ("", *TOGETHER)]
    if any(node.overflow == "all" for node in sharing):
        return (tuple(sharing),)
    causality = graph.causality
    updates = causality.collect({node.op for node in graph.nodes.values() if takes_part(node)} if sharing else ())
    producers = find_producers(graph.nodes.values()) if sharing else {}
    groups: dict[Bits, list[Instruction]] = {}
    for node in sharing:
        before = NOTHING
        for gradient in find_gradients(graph, node, producers):
            before = unite(before, causality.meet(gradient, updates))
        groups.setdefault(trim(before), []).append(node)
    return tuple(tuple(group) for group in groups.values())


def takes_part(node: Instruction) -> bool:
    """Return whether a node is what an update does with its gradients: it is applied, or its window gathers."""
    return is_update(node) or (node.is_write and node.admission == window_of(node.op))


def find_gradients(graph: StepGraph, write: Instruction, producers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the gradients, as they were taken, that the verdict of a write is about."""
    pending, found = [producers[write.verdict]], dict[str, None]()
    while pending:
        node = graph.nodes[pending.pop()]
        match node:
            case CheckFinite(gradients=sets) | Transform(inputs=sets):
                pending += [producers[value] for value in sets if value in producers]
            case _ if node.derivative is not None:
                found[node.id] = None
            case _:
                pass
    return tuple(found)


class _Finder(Struct, frozen=True, kw_only=True):
    """Follows conditions from the writes of gradients to what follows these."""

    graph: StepGraph
    own: Mapping[str, Commit]
    known: dict[str, Commit] = {}

    def find(self, name: str) -> Commit:
        """Return the condition of a write: its own, and those of the writes it follows."""
        if name not in self.known:
            node = self.graph.nodes[name]
            gated_by = self.find(node.gated_by) if node.gated_by in self.graph.nodes else ALWAYS
            written = find_sources(node, self.graph.nodes, self.graph.writers)
            # An average or copy does not follow the statistics of forwards.
            followed = dict.fromkeys(writer for _, writer in written if self.graph.nodes[writer].is_write)
            sources = either([self.find(writer) for writer in followed])
            self.known[name] = both(self.own.get(name, ALWAYS), both(gated_by, sources))
        return self.known[name]


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

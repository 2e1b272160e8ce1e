"""Put values that replicas combine into as few messages as can be, without holding any gradient back.

A message leaves as soon as its gradient sets are there. A number, a verdict or rows, which take next to no time, leave
with the next message before something waits for them; sets leave together between which no model runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Instruction, Start
from compiler.ir.step_graph import StepGraph


class Window(Struct, frozen=True, kw_only=True):
    """Where in a sequence a message may start: from where its values are there up to where something waits for it."""

    start: Start
    ready: int
    needed: int


def bundle_messages(graph: StepGraph) -> StepGraph:
    """Return a scheduled graph in which the messages that can leave together are one."""
    place = {name: index for index, name in enumerate(graph.sequence)}
    needed = {node.message: name for name, node in graph.nodes.items() if node.message}
    starts = [each for name in graph.sequence if isinstance(each := graph.nodes[name], Start)]
    windows = [Window(start=each, ready=place[each.id], needed=place[needed[each.output]]) for each in starts]
    works = [place[name] for name, node in graph.nodes.items() if node.called is not None or node.derivative]
    bundles = [
        bundle
        for collective in ("sum", "gather")
        for bundle in _bundle([each for each in windows if each.start.collective == collective], works)
    ]
    return _merge(graph, [bundle for bundle in bundles if len(bundle) > 1])


def _bundle(windows: Sequence[Window], works: Sequence[int]) -> Iterator[Sequence[Window]]:
    """Yield the messages of one kind that leave together: with the last of them, before the first is waited for."""
    sets: list[list[Window]] = []
    for each in (each for each in windows if each.start.has_sets):
        before = sets[-1] if sets else [each]
        is_next = each.ready < min(other.needed for other in before)
        if is_next and sets and not any(before[-1].ready < work < each.ready for work in works):
            before.append(each)
        else:
            sets.append([each])
    left: list[Window] = [each for each in windows if not each.start.has_sets]
    for bundle in sets:
        joining = [each for each in left if each.ready < bundle[-1].ready < each.needed]
        left = [each for each in left if each not in joining]
        yield [*bundle, *joining]
    while left:  # the fewest moments that lie in all windows, the earliest end first
        end = min(each.needed for each in left)
        yield [each for each in left if each.ready < end]
        left = [each for each in left if each.ready > end]


def _merge(graph: StepGraph, bundles: Iterable[Sequence[Window]]) -> StepGraph:
    """Return a graph with one start for each bundle, where its last one was, which goes by the name of its largest."""
    renamed: dict[str, str] = {}
    """Start, or message -> that which takes its place."""
    merged: dict[str, Start] = {}
    """The start after which no other of its bundle comes -> the one for all of them."""
    for bundle in bundles:
        ordered = sorted(bundle, key=lambda each: each.ready)
        named = next((each.start for each in ordered if each.start.has_sets), ordered[-1].start)
        starts = [each.start for each in ordered]
        renamed |= {each.id: named.id for each in starts} | {each.output: named.output for each in starts}
        merged[starts[-1].id] = replace(
            named,
            uses=tuple(use for each in starts for use in each.uses),
            parts=tuple(part for each in starts for part in each.parts),
        )
    if not merged:
        return graph
    replaced = {each.id: each for each in merged.values()}
    nodes: dict[str, Instruction] = {}
    for name, node in graph.nodes.items():
        if node.message in renamed:
            uses = tuple(replace(use, value=renamed.get(use.value, use.value)) for use in node.uses)
            nodes[name] = replace(node, uses=uses, message=renamed[node.message])
        elif name in replaced or name not in renamed:
            nodes[name] = replaced.get(name, node)
    kept = (name for name in graph.sequence if name in merged or name not in renamed)
    edges = (
        replace(edge, before=renamed.get(edge.before, edge.before), after=renamed.get(edge.after, edge.after))
        for edge in graph.ordering
    )
    return replace(
        graph,
        nodes=nodes,
        sequence=tuple(merged[name].id if name in merged else name for name in kept),
        ordering=tuple(dict.fromkeys(edges)),
    )

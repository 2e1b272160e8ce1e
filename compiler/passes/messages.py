"""Put values that replicas combine into as few messages as can be, without holding any gradient back.

A message leaves as soon as its gradient sets are there. A number, a verdict or rows, which take next to no time, leave
with the next message before something waits for them; sets leave together between which no model runs. A value is sent
once, even if several ops need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Instruction, Start
from compiler.ir.step_graph import StepGraph


class Window(Struct, frozen=True, kw_only=True):
    """Where in a sequence a message may start: from where its values are there up to where something waits for it."""

    starts: tuple[Start, ...]
    """All that send the same, in the order of the sequence."""
    ready: int
    needed: int

    @property
    def start(self) -> Start:
        """Return the first start, with all that becomes of the values."""
        first, *others = self.starts
        wholes = zip(*(each.parts for each in self.starts), strict=True)
        parts = (replace(same[0], wholes=tuple(whole for part in same for whole in part.wholes)) for same in wholes)
        return replace(first, parts=tuple(parts)) if others else first


def bundle_messages(graph: StepGraph) -> StepGraph:
    """Return a scheduled graph in which the messages that can leave together are one."""
    place = graph.position
    needed: dict[str, int] = {}
    same: dict[object, list[Start]] = {}
    for name in graph.sequence:
        node = graph.nodes[name]
        if node.message:
            needed.setdefault(node.message, place[name])
        if isinstance(node, Start):
            same.setdefault((node.collective, *((part.value, part.axis) for part in node.parts)), []).append(node)
    windows = [
        Window(starts=tuple(starts), ready=place[starts[0].id], needed=min(needed[each.output] for each in starts))
        for starts in same.values()
    ]
    works = [place[name] for name, node in graph.nodes.items() if node.called is not None or node.derivative]
    bundles = [
        bundle
        for collective in ("sum", "gather")
        for bundle in _bundle([each for each in windows if each.start.collective == collective], works)
    ]
    return _merge(graph, [bundle for bundle in bundles if len(bundle) > 1 or len(bundle[0].starts) > 1])


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
        for each in (each for window in ordered for each in window.starts):
            renamed |= {each.id: named.id, each.output: named.output}
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

"""Shards of gradient sets: which sets a process needs in whole, and of which only the part for the weights it keeps.

Where all that reads a set can act on shards, it is reduced to these: each process receives its part of the sum. Any
other set is summed for all, and cut where an update takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.making import check_everywhere, wait
from compiler.ir.instructions import Apply, CheckFinite, Gradient, Instruction, Start, TakeAccumulated, Transform
from compiler.ir.value import FunctionRef, Use

REDUCE, SCATTER, CUT = "reduce_set", "scatter_set", "cut_set"
"""The functions that make a set of all replicas: the whole, its shards, and the shards of what is whole already."""
BY_ELEMENT = frozenset(
    {
        "accumulated",
        "add_sets",
        "clip_value",
        "fill",
        "join",
        "mul_sets",
        "regularize",
        "require",
        "scale",
        "share",
        "sub_sets",
    }
)
"""Transforms that make each element of the elements at its place."""
LENGTHS = frozenset({"clip_norm", "normalize"})
"""Transforms that also need the lengths of gradients, which are added up over shards."""


def shard_sets(nodes: Mapping[str, Instruction]) -> Mapping[str, Instruction]:
    """Return the nodes of a step whose updates take shards, each node that is new before the first that uses it."""
    return _Sharding(nodes=nodes).run()


class _Sharding(Struct, frozen=True, kw_only=True, dict=True):
    """The nodes of a step, and what is known about its gradient sets."""

    nodes: Mapping[str, Instruction]
    makers: dict[str, Instruction] = {}
    """Gradient set -> the node that makes it."""
    users: dict[str, list[Instruction]] = {}
    """Gradient set -> the nodes that read it."""
    waiting: dict[str, Instruction] = {}
    """Message -> the node that waits for it."""
    known: dict[str, bool] = {}

    def run(self) -> Mapping[str, Instruction]:
        """Return the nodes."""
        for node in self.nodes.values():
            if isinstance(node, Gradient | Transform | TakeAccumulated) and node.output is not None:
                self.makers[node.output] = node
            if node.message:
                self.waiting[node.message] = node
            for use in node.uses:
                self.users.setdefault(use.value, []).append(node)
        found: dict[str, Instruction] = {}
        for node in self.nodes.values():
            found.update((each.id, each) for each in self._place(node))
        return found

    def _place(self, node: Instruction) -> Iterator[Instruction]:
        """Yield a node, after those that cut the sets which it takes as shards."""
        match node:
            case Start() if self._is_scattered(self.waiting[node.output]):
                return  # what is scattered is sent where it is received
            case Transform() if self._is_scattered(node):
                uses = tuple(use for use in node.uses if use.value != node.message)
                yield replace(node, function=FunctionRef(name=SCATTER, builtin=True), uses=uses, message="")
            case Transform() if self._acts_on_shards(node):
                cut = {value: _name(value) for value in node.inputs if self._is_whole(value)}
                yield from (self._cut(value, node) for value in cut)
                inputs = tuple(cut.get(value, value) for value in node.inputs)
                yield replace(node, inputs=inputs, uses=_renamed(node.uses, cut), is_sharded=True)
            case Apply():
                values = dict.fromkeys(part.gradients for part in node.parts)
                cut = {value: _name(value) for value in values if self._is_whole(value)}
                yield from (self._cut(value, node) for value in cut)
                parts = tuple(replace(part, gradients=cut.get(part.gradients, part.gradients)) for part in node.parts)
                yield replace(node, parts=parts, uses=_renamed(node.uses, cut))
            case CheckFinite() if any(self._is_sharded(value) for value in node.gradients):
                own, check = check_everywhere(node)
                yield from (own, *wait(check, own.output, node.id))
            case _:
                yield node

    def _is_scattered(self, node: Instruction) -> bool:
        """Return whether a node adds up a set of which only shards are needed."""
        return isinstance(node, Transform) and node.function.name == REDUCE and self._is_sharded(node.output)

    def _is_sharded(self, value: str) -> bool:
        """Return whether of a set only shards are needed."""
        if value not in self.known:
            self.known[value] = False  # of a set that is made of itself the whole is needed
            users = [each for each in self.users.get(value, ()) if not isinstance(each, CheckFinite)]
            maker = self.makers.get(value)
            self.known[value] = (
                isinstance(maker, Transform)
                and (maker.function.name == REDUCE or _is_by_element(maker))
                and bool(users)
                and all(isinstance(each, Apply) or self._acts_on_shards(each) for each in users)
            )
        return self.known[value]

    def _is_whole(self, value: str) -> bool:
        """Return whether a value is a set of which every process has all."""
        return value in self.makers and not self._is_sharded(value)

    def _acts_on_shards(self, node: Instruction) -> bool:
        """Return whether a node is a transform that acts on shards."""
        return isinstance(node, Transform) and _is_by_element(node) and self._is_sharded(node.output)

    def _cut(self, value: str, user: Instruction) -> Transform:
        """Return the node that takes the shards of this process out of a whole set."""
        maker = self.makers[value]
        assert isinstance(maker, Gradient | Transform | TakeAccumulated)
        is_open = maker.unconnected == "skip" or bool(maker.frozen) if isinstance(maker, Gradient) else maker.may_miss
        return Transform(
            id=f"{_name(value)}.cut",
            op=user.op,
            label=f"cut {value}",
            place=user.place,
            uses=(Use(value=value),),
            gate=maker.gate,
            function=FunctionRef(name=CUT, builtin=True),
            inputs=(value,),
            output=_name(value),
            models=maker.models,
            may_miss=is_open,
        )


def _name(value: str) -> str:
    """Return the name of the shards of a whole set."""
    return f"{value}#shards"


def _renamed(uses: tuple[Use, ...], names: Mapping[str, str]) -> tuple[Use, ...]:
    """Return uses of other values."""
    return tuple(replace(use, value=names.get(use.value, use.value)) for use in uses)


def _is_by_element(node: Transform) -> bool:
    """Return whether a transform can act on shards: by element, or by lengths."""
    name = node.function.name
    if not node.function.builtin or node.weights or any(each.function is not None for each in node.penalties):
        return False
    return name in BY_ELEMENT or name in LENGTHS

"""How every value of a mode is placed over micro-batches, and which nodes run for each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeGuard

from msgspec import Struct

from compiler.batch.losses import find_terms
from compiler.ir.diagnose import place_in
from compiler.ir.instructions import MASKS, Evaluate, Forward, Gradient, Instruction, Random
from compiler.ir.step_graph import find_producers
from compiler.ir.value import Argument, Ref
from compiler.passes.order import sort_by_data
from compiler.types.calls import BATCH, Called, Placement, has_batch
from compiler.types.dimension import UNKNOWN, TensorType
from graphspec.declare.graph import GraphSpec

COUPLED_LOSSES = frozenset({"nt_xent"})
NUMBERS = frozenset({Placement.PARTIAL_MEAN, Placement.PARTIAL_SUM, Placement.MIXED, Placement.RATIO})
"""Placements of numbers that are made of rows: a part of the batch has another one than the whole."""
GATHERING = frozenset({"all_gather", "all_mean"})
"""Calls whose results are made of the rows of all processes, and are the same on each."""


class PlacementAnalysis(Struct, kw_only=True, dict=True):
    """What is found out about the values and nodes of a mode, in data order."""

    spec: GraphSpec
    types: Mapping[str, TensorType]
    """Shapes and types of values, as far as they are known."""
    crossing: Collection[str] = frozenset()
    """The gradients that reach the rows of a process through those of all."""
    gathered: set[str] = set()
    """Values that are made of the rows of all processes, and the same on each."""
    placements: dict[str, Placement] = {}
    axes: dict[str, int] = {}
    """The axis of the batch of values with rows, where it is not the leading one."""
    coupled: dict[str, str] = {}
    """Instruction -> why its micro-batches do not combine to the result of the batch."""
    scalars: set[str] = set()
    """Values that are scalars, since a gradient differentiates their sum."""

    def __post_init__(self) -> None:
        """Start from the inputs: one that does not declare its shape has rows."""
        for name, declared in self.spec.inputs.items():
            is_batched = declared.shape is None or BATCH in declared.shape
            self.placements[name] = Placement.SHARDED if is_batched else Placement.REPLICATED
            if declared.shape is not None and BATCH in declared.shape:
                self.axes[name] = declared.shape.index(BATCH)

    def read(self, nodes: Mapping[str, Instruction]) -> None:
        """Read nodes, each after those that it uses."""
        producers = find_producers(nodes.values())
        for loss in find_scalars(nodes):
            self.scalars.update(find_terms(self.spec, loss))
            if loss in producers:  # a share of a loss has the name of that in its op
                self.scalars.update(find_terms(self.spec, nodes[producers[loss]].op))
        for name in sort_by_data(nodes):
            node = nodes[name]
            is_made_of_all = not self.is_batched(node) and any(use.value in self.gathered for use in node.uses)
            if is_made_of_all or self.joins(node):
                self.gathered.update(node.defines)
            match node:
                case Random() as draw:
                    if BATCH in (shape := draw.shape or ()):
                        self.placements[draw.output], self.axes[draw.output] = Placement.SHARDED, shape.index(BATCH)
                    if draw.like is not None and self.of(draw.like) is Placement.SHARDED:
                        self.placements[draw.output], self.axes[draw.output] = Placement.SHARDED, self.axis(draw.like)
                case Forward() as call if self.is_batched(call):
                    for value in call.defines:
                        self.placements[value] = self._find_result(value)
                case Evaluate() as call if self.is_batched(call):
                    self._read_evaluation(call)
                case Gradient() as gradient if self.is_batched(gradient):
                    seeds = [self.of(each.name) for each in gradient.grad_outputs if isinstance(each, Ref)]
                    if not NUMBERS.isdisjoint(seeds):
                        self.coupled[gradient.id] = "`grad_outputs` is a number of the whole batch"
                    # the gradient of a value with rows has rows; those of anything else are added up over the parts
                    for value, output in zip(gradient.values, gradient.value_outputs, strict=True):
                        has_rows = self.of(value) is Placement.SHARDED
                        self.placements[output] = Placement.SHARDED if has_rows else Placement.PARTIAL_SUM
                        if has_rows:
                            self.axes[output] = self.axis(value)
                case _:
                    continue

    def of(self, value: str) -> Placement:
        """Return the placement of a value; states, gradient sets and all else that is not batched are whole."""
        return self.placements.get(value, Placement.REPLICATED)

    def axis(self, value: str) -> int:
        """Return the axis of the batch of a value with rows."""
        return self.axes.get(value, 0)

    @property
    def sized_input(self) -> str:
        """Return the input whose rows are counted: the first that has some."""
        return next(name for name in self.spec.inputs if self.of(name) is Placement.SHARDED)

    def place(self, name: str) -> str:
        """Return where an input is declared."""
        return place_in(self.spec.span("inputs", name, key=True))

    def is_batched(self, node: Instruction) -> bool:
        """Return whether a node runs for every micro-batch: its results depend on the batch, and it writes once.

        A metric, a division by the count of all parts, and a mask that is made of numbers of the batch need it whole;
        what gathers the rows of all parts gives it whole. Of a loss that is made of such rows every part has its share.
        """
        match node:
            case Evaluate() if is_gathering(node):
                return False
            case Evaluate() if node.family == "metric" or node.function.name == "inverse":
                return False
            case Evaluate() if node.function.builtin and node.function.name in MASKS:
                return any(self._find_operand(each) is Placement.SHARDED for each in node.arguments)
            case Forward() | Evaluate():
                return any(self._find_operand(each) is not Placement.REPLICATED for each in node.arguments)
            case Gradient():
                is_shared = node.id in self.crossing or (bool(node.models) and node.loss in self.gathered)
                return is_shared or self.of(node.loss) is not Placement.REPLICATED
            case _:
                return False

    def joins(self, node: Instruction) -> TypeGuard[Evaluate]:
        """Return whether a node joins rows that are apart; rows that are gathered already it gives as they are."""
        return is_gathering(node) and any(self._find_operand(each) is Placement.SHARDED for each in node.arguments)

    def _find_result(self, value: str) -> Placement:
        """Return the placement of a model's or user function's result on rows: sharded, unless it has none."""
        shape = self.types.get(value, UNKNOWN).shape
        has_rows = value not in self.scalars if shape is None else has_batch(shape)
        return Placement.SHARDED if has_rows else Placement.PARTIAL_MEAN

    def _read_evaluation(self, node: Evaluate) -> None:
        """Note the placements of the results of a call or loss, whether it couples samples, and where its rows lie."""
        placements, name = [self._find_operand(each) for each in node.arguments], node.function.name
        found = dict.fromkeys(node.outputs, Placement.RATIO)
        if node.family == "loss":  # a user's loss is a mean
            is_sum = node.reduction == "sum" or node.counted
            reduced = Placement.PARTIAL_SUM if is_sum else Placement.PARTIAL_MEAN
            found = dict.fromkeys(node.outputs, Placement.SHARDED if node.reduction == "none" else reduced)
            # one loss takes the mean of its values as the threshold, unless there is one
            is_coupled = name in COUPLED_LOSSES or (name == "super_loss" and node.options.get("threshold") is None)
            if not NUMBERS.isdisjoint(placements):
                self.coupled[node.id] = "it is no mean or sum over samples"
            elif node.function.builtin and is_coupled:
                self.coupled[node.id] = f"`{name}` compares samples with each other"
        elif not node.function.builtin:
            found = {value: self._find_result(value) for value in node.outputs}
        elif name != "quotient":
            operands = [each.operand for each in node.arguments if isinstance(each.operand, Ref)]
            call = Called(
                name=name,
                placements=placements,
                types=[self.types.get(each.name, UNKNOWN) for each in operands],
                axes=[self.axis(each.name) for each in operands],
                options=node.options,
                result=self.types.get(node.outputs[0], UNKNOWN),
            )
            if call.is_coupling():
                self.coupled[node.id] = f"`{name}` makes a number of the whole batch, or mixes its samples"
            found = dict.fromkeys(node.outputs, call.place())
        self.placements |= found
        for value in node.outputs:  # rows lie along the first axis that depends on the batch
            shape = self.types.get(value, UNKNOWN).shape or ()
            axes = [axis for axis, size in enumerate(shape) if has_batch((size,))]
            if axes and self.of(value) is Placement.SHARDED:
                self.axes[value] = axes[0]

    def _find_operand(self, argument: Argument) -> Placement:
        """Return the placement of an argument; a number is replicated."""
        return self.of(argument.operand.name) if isinstance(argument.operand, Ref) else Placement.REPLICATED


def is_gathering(node: Instruction) -> TypeGuard[Evaluate]:
    """Return whether a node gathers what processes have of a value."""
    return isinstance(node, Evaluate) and node.function.builtin and node.function.name in GATHERING


def find_scalars(nodes: Mapping[str, Instruction]) -> Iterator[str]:
    """Yield the values that something differentiates without seeds: each is one number for its micro-batch."""
    for node in nodes.values():
        if isinstance(node, Gradient) and not node.grad_outputs:
            yield node.loss

"""Reading of a mode's nodes: the kind of every value under micro-batches, and which nodes run for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from compiler.batch.calls import BATCH, Called, Kind, has_batch
from compiler.batch.losses import find_terms
from compiler.ir.diagnose import place_in
from compiler.ir.digraph import sort
from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction, Random
from compiler.ir.value import Argument, Ref
from compiler.passes.order import find_producers
from compiler.types.dimension import UNKNOWN, TensorType
from graphspec.declare.graph import GraphSpec

COUPLED_LOSSES = frozenset({"nt_xent"})


@dataclass(kw_only=True)
class Reading:
    """What is found out about the values and nodes of a mode, in data order."""

    spec: GraphSpec
    types: Mapping[str, TensorType]
    """Shapes and types of values, as far as they are known."""
    kinds: dict[str, Kind] = field(default_factory=dict[str, Kind])
    axes: dict[str, int] = field(default_factory=dict[str, int])
    """The axis of the batch of values with rows, where it is not the leading one."""
    coupled: dict[str, str] = field(default_factory=dict[str, str])
    """Instruction -> why its micro-batches do not combine to the result of the batch."""
    scalars: set[str] = field(default_factory=set[str])
    """Values that are scalars, since a gradient differentiates their sum."""

    def __post_init__(self) -> None:
        """Start from the inputs: one that does not declare its shape has rows."""
        for name, declared in self.spec.inputs.items():
            is_batched = declared.shape is None or BATCH in declared.shape
            self.kinds[name] = Kind.ROWS if is_batched else Kind.WHOLE
            if declared.shape is not None and BATCH in declared.shape:
                self.axes[name] = declared.shape.index(BATCH)

    def read(self, nodes: Mapping[str, Instruction]) -> None:
        """Read nodes, each after those that it uses."""
        producers = find_producers(nodes.values())
        # of a share of a loss: the loss, whose name its op has
        losses = ({loss, nodes[producers[loss]].op} if loss in producers else {loss} for loss in find_scalars(nodes))
        self.scalars |= {term for names in losses for loss in names for term in find_terms(self.spec, loss)}
        before = {
            name: [producers[use.value] for use in node.uses if use.value in producers] for name, node in nodes.items()
        }
        for name in sort(before):
            match nodes[name]:
                case Random() as draw:
                    if BATCH in (shape := draw.shape or ()):
                        self.kinds[draw.output], self.axes[draw.output] = Kind.ROWS, shape.index(BATCH)
                    if draw.like is not None and self.kind(draw.like) is Kind.ROWS:
                        self.kinds[draw.output], self.axes[draw.output] = Kind.ROWS, self.axis(draw.like)
                case Forward() as call if self.is_batched(call):
                    self.kinds.update({value: self._find_result(value) for value in call.defines})
                case Evaluate() as call if self.is_batched(call):
                    self._read_evaluation(call)
                case Gradient() as gradient if self.is_batched(gradient):
                    # the gradient of a value with rows has rows; those of anything else are added up over the parts
                    for value, output in zip(gradient.values, gradient.value_outputs, strict=True):
                        has_rows = self.kind(value) is Kind.ROWS
                        self.kinds[output] = Kind.ROWS if has_rows else Kind.SUM
                        if has_rows:
                            self.axes[output] = self.axis(value)
                case _:
                    continue

    def kind(self, value: str) -> Kind:
        """Return the kind of a value; states, gradient sets and all else that is not batched are whole."""
        return self.kinds.get(value, Kind.WHOLE)

    def axis(self, value: str) -> int:
        """Return the axis of the batch of a value with rows."""
        return self.axes.get(value, 0)

    @property
    def sized_input(self) -> str:
        """Return the input whose rows are counted: the first that has some."""
        return next(name for name in self.spec.inputs if self.kind(name) is Kind.ROWS)

    def place(self, name: str) -> str:
        """Return where an input is declared."""
        return place_in(self.spec.span("inputs", name, key=True))

    def is_batched(self, node: Instruction) -> bool:
        """Return whether a node runs for every micro-batch: its results depend on the batch, and it writes once.

        A metric, and a division by the count of all parts, need the whole batch.
        """
        match node:
            case Evaluate() if node.family == "metric" or node.function.name == "inverse":
                return False
            case Forward() | Evaluate():
                return any(self._find_operand(each) is not Kind.WHOLE for each in node.arguments)
            case Gradient():
                return self.kind(node.loss) is not Kind.WHOLE
            case _:
                return False

    def _find_result(self, value: str) -> Kind:
        """Return the kind of a model's or user function's result on rows: rows, unless it is known to have none."""
        shape = self.types.get(value, UNKNOWN).shape
        has_rows = value not in self.scalars if shape is None else has_batch(shape)
        return Kind.ROWS if has_rows else Kind.MEAN

    def _read_evaluation(self, node: Evaluate) -> None:
        """Note the kinds of the results of a call or loss, whether it couples samples, and where its rows lie."""
        kinds, name = [self._find_operand(each) for each in node.arguments], node.function.name
        found = dict.fromkeys(node.outputs, Kind.RATIO)
        if node.family == "loss":  # a user's loss is a mean
            is_sum = node.reduction == "sum" or node.counted
            reduced = Kind.SUM if is_sum else Kind.MEAN
            found = dict.fromkeys(node.outputs, Kind.ROWS if node.reduction == "none" else reduced)
            # one loss takes the mean of its values as the threshold, unless there is one
            is_coupled = name in COUPLED_LOSSES or (name == "super_loss" and node.options.get("threshold") is None)
            if not {Kind.MEAN, Kind.SUM, Kind.MIXED, Kind.RATIO}.isdisjoint(kinds):
                self.coupled[node.id] = "it is no mean or sum over samples"
            elif node.function.builtin and is_coupled:
                self.coupled[node.id] = f"`{name}` compares samples with each other"
        elif not node.function.builtin:
            found = {value: self._find_result(value) for value in node.outputs}
        elif name != "quotient":
            operands = [each.operand for each in node.arguments if isinstance(each.operand, Ref)]
            call = Called(
                name=name,
                kinds=kinds,
                types=[self.types.get(each.name, UNKNOWN) for each in operands],
                axes=[self.axis(each.name) for each in operands],
                options=node.options,
                result=self.types.get(node.outputs[0], UNKNOWN),
            )
            if call.is_coupling():
                self.coupled[node.id] = f"`{name}` makes a number of the whole batch, or mixes its samples"
            found = dict.fromkeys(node.outputs, call.find_kind())
        self.kinds |= found
        for value in node.outputs:  # rows lie along the first axis that depends on the batch
            shape = self.types.get(value, UNKNOWN).shape or ()
            axes = [axis for axis, size in enumerate(shape) if has_batch((size,))]
            if axes and self.kind(value) is Kind.ROWS:
                self.axes[value] = axes[0]

    def _find_operand(self, argument: Argument) -> Kind:
        """Return the kind of an argument; a number is whole."""
        return self.kind(argument.operand.name) if isinstance(argument.operand, Ref) else Kind.WHOLE


def find_scalars(nodes: Mapping[str, Instruction]) -> Iterator[str]:
    """Yield the values that something differentiates without seeds: each is one number for its micro-batch."""
    for node in nodes.values():
        if isinstance(node, Gradient) and not node.grad_outputs:
            yield node.loss

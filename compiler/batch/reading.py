"""Reading of a mode's nodes: the kind of every value under micro-batches, and which nodes run for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
            self._read(nodes[name])

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
        """Return whether a node runs for every micro-batch: its results depend on the batch, and it writes once."""
        match node:
            case Forward() | Evaluate():
                return not _is_late(node) and any(self._is_split(each) for each in node.arguments)
            case Gradient():
                return self.kind(node.loss) is not Kind.WHOLE
            case _:
                return False

    def _read(self, node: Instruction) -> None:
        """Note the kinds of what a node defines."""
        match node:
            case Random():
                self._read_draw(node)
            case Forward() if self.is_batched(node):
                self.kinds.update({value: self._find_result(value) for value in node.defines})
            case Evaluate() if self.is_batched(node):
                self._read_evaluation(node)
            case Gradient() if self.is_batched(node):
                self._read_gradient(node)
            case _:
                return

    def _read_draw(self, instruction: Random) -> None:
        """Note a draw for the whole batch: its shape names it, or it is like what has rows."""
        shape = instruction.shape or ()
        if BATCH in shape:
            self.kinds[instruction.output], self.axes[instruction.output] = Kind.ROWS, shape.index(BATCH)
        if instruction.like is not None and self.kind(instruction.like) is Kind.ROWS:
            self.kinds[instruction.output] = Kind.ROWS
            self.axes[instruction.output] = self.axis(instruction.like)

    def _find_result(self, value: str) -> Kind:
        """Return the kind of a model's or user function's result on rows: rows, unless it is known to have none."""
        shape = self.types.get(value, UNKNOWN).shape
        has_rows = value not in self.scalars if shape is None else has_batch(shape)
        return Kind.ROWS if has_rows else Kind.MEAN

    def _read_evaluation(self, instruction: Evaluate) -> None:
        """Note the kinds of the results of a call or loss."""
        arguments = instruction.arguments
        kinds = [self._find_operand(each) for each in arguments]
        if instruction.family == "loss":
            found = _find_loss(instruction)
            if not {Kind.MEAN, Kind.SUM, Kind.MIXED, Kind.RATIO}.isdisjoint(kinds):
                self.coupled[instruction.id] = "it is no mean or sum over samples"
            elif instruction.function.builtin and _is_coupled_loss(instruction):
                self.coupled[instruction.id] = f"`{instruction.function.name}` compares samples with each other"
            self.kinds.update(dict.fromkeys(instruction.outputs, found))
        elif instruction.function.name == "quotient":
            self.kinds.update(dict.fromkeys(instruction.outputs, Kind.RATIO))
        elif not instruction.function.builtin:
            self.kinds.update({value: self._find_result(value) for value in instruction.outputs})
        else:
            call = self._describe(instruction, kinds)
            if call.is_coupling():
                self.coupled[instruction.id] = f"`{call.name}` makes a number of the whole batch, or mixes its samples"
            self.kinds.update(dict.fromkeys(instruction.outputs, call.find_kind()))
        self._read_axes(instruction.outputs)

    def _read_axes(self, values: Iterable[str]) -> None:
        """Note where the rows of results lie: along the first axis that depends on the batch."""
        for value in values:
            shape = self.types.get(value, UNKNOWN).shape or ()
            found = [axis for axis, size in enumerate(shape) if has_batch((size,))]
            if found and self.kind(value) is Kind.ROWS:
                self.axes[value] = found[0]

    def _describe(self, instruction: Evaluate, kinds: list[Kind]) -> Called:
        """Return a built-in call with what is known of its operands and results."""
        operands = [each.operand for each in instruction.arguments if isinstance(each.operand, Ref)]
        return Called(
            name=instruction.function.name,
            kinds=kinds,
            types=[self.types.get(each.name, UNKNOWN) for each in operands],
            axes=[self.axis(each.name) for each in operands],
            options=instruction.options,
            result=self.types.get(instruction.outputs[0], UNKNOWN),
        )

    def _read_gradient(self, instruction: Gradient) -> None:
        """Note the gradients of values: by rows they have rows, by anything else all parts are added up."""
        for value, output in zip(instruction.values, instruction.value_outputs, strict=True):
            has_rows = self.kind(value) is Kind.ROWS
            self.kinds[output] = Kind.ROWS if has_rows else Kind.SUM
            if has_rows:
                self.axes[output] = self.axis(value)

    def _is_split(self, argument: Argument) -> bool:
        """Return whether an argument is a value that depends on the batch."""
        return self._find_operand(argument) is not Kind.WHOLE

    def _find_operand(self, argument: Argument) -> Kind:
        """Return the kind of an argument; a number is whole."""
        return self.kind(argument.operand.name) if isinstance(argument.operand, Ref) else Kind.WHOLE


def find_scalars(nodes: Mapping[str, Instruction]) -> Iterator[str]:
    """Yield the values that something differentiates without seeds: each is one number for its micro-batch."""
    for node in nodes.values():
        if isinstance(node, Gradient) and not node.grad_outputs:
            yield node.loss


def _is_late(instruction: Forward | Evaluate) -> bool:
    """Return whether an instruction needs the whole batch: a metric, or a division by the count of all parts."""
    if not isinstance(instruction, Evaluate):
        return False
    return instruction.family == "metric" or instruction.function.name == "inverse"


def _find_loss(instruction: Evaluate) -> Kind:
    """Return the kind of a loss: its reduction, or that of its sum and count; a user's loss is a mean."""
    if instruction.reduction == "none":
        return Kind.ROWS
    return Kind.SUM if instruction.reduction == "sum" or instruction.counted else Kind.MEAN


def _is_coupled_loss(instruction: Evaluate) -> bool:
    """Return whether a built-in loss couples samples: it compares them, or takes their mean as its threshold."""
    name = instruction.function.name
    return name in COUPLED_LOSSES or (name == "super_loss" and instruction.options.get("threshold") is None)

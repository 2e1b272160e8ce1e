"""The floating-point operations of instructions, from the shapes that the compiler inferred.

A multiplication and an addition are two operations: a dense layer has 2 n in out, a convolution 2 n positions kernel in
out. A gradient passes each product twice, by its input and by its weights, where both are asked for. All else counts an
operation for each number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Evaluate, Forward, Random
from compiler.ir.program import OptimizerDecl
from compiler.ir.value import Plain, Ref, Shape
from compiler.plan.compiled_step import CompiledStep
from compiler.types.dimension import UNKNOWN, TensorType, evaluate, find_free
from compiler.types.layers import LayerCall, trace_layers
from compiler.types.sequence_layers import GATES
from graphspec.declare.equations import read_equation
from graphspec.declare.options import BATCH

Term: TypeAlias = tuple[float, Shape]
"""A number times the product of sizes, some of which are free."""
COST = "__cost_"
"""A free size of this name and that of a model is what its forward takes for each row, which only its class knows."""
NOTHING = ("flatten", "reshape", "identity")
"""Layers that compute nothing."""
VIEWS = frozenset(("stop", "reshape", "expand", "permute", "slice", "subscript", "split", "split_rows"))
"""Calls that compute nothing."""


class Work(Struct, frozen=True):
    """Operations, or numbers that are held: a sum of terms."""

    terms: tuple[Term, ...] = ()

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(self.terms + other.terms)

    def scale(self, factor: float) -> Work:
        """Return it several times; nothing for zero."""
        return Work(tuple((factor * number, shape) for number, shape in self.terms) if factor else ())

    def count(self, sizes: Mapping[str, int]) -> float:
        """Return how many there are, given every size that is free; what depends on another one counts nothing."""
        total = 0.0
        for number, shape in self.terms:
            known = [evaluate(size, sizes) for size in shape]
            total += number * prod(size for size in known if size is not None) if None not in known else 0.0
        return total

    @property
    def by_rows(self) -> Work:
        """Return what depends on a free size."""
        return Work(tuple(term for term in self.terms if any(isinstance(size, str) for size in term[1])))

    @property
    def free(self) -> frozenset[str]:
        """Return the free sizes that it depends on."""
        return frozenset(name for _, shape in self.terms for size in shape for name in find_free(size))


def add_up(works: Iterable[Work]) -> Work:
    """Return all together."""
    return Work(tuple(term for work in works for term in work.terms))


class LayerWork(Struct, frozen=True, kw_only=True):
    """What a layer does in a forward, by how often its gradient does it again, and the numbers it holds."""

    weighted: Work = Work()
    """Products with weights: once more for the gradient of the input, and once for that of the weights."""
    paired: Work = Work()
    """Products of values: once more for each of the two."""
    plain: Work = Work()
    """All else: once more."""
    kernels: int = 0
    """How many pieces of work a device is given."""
    parameters: int = 0
    results: Work = Work()
    """The numbers that it gives to the next one, which a gradient reads again."""

    @property
    def forward(self) -> Work:
        """Return what a forward takes."""
        return self.weighted + self.paired + self.plain

    def on_rows_of(self, calls: int) -> LayerWork:
        """Return the work on the rows of so many calls, in as many kernels as that of one."""
        return replace(
            self,
            weighted=self.weighted.scale(calls),
            paired=self.paired.scale(calls),
            plain=self.plain.scale(calls),
            results=self.results.scale(calls),
        )

    def backward(self, *, inputs: bool, weights: bool) -> Work:
        """Return what a gradient takes that is asked for the input, for the weights, or for both."""
        reached = inputs or (weights and bool(self.weighted.terms))
        rest = self.paired.scale(2) + self.plain
        return self.weighted.scale(inputs + weights) + (rest if reached else Work())


def find_layer_works(plan: CompiledStep, forward: Forward) -> tuple[LayerWork, ...]:
    """Return the work of every layer of a model in a call, in order; of a class one layer with all of it."""
    declared = plan.program.model(forward.model)
    while declared.like is not None:
        declared = plan.program.model(declared.like)
    given = find_type(plan, forward.arguments[0].operand) if forward.arguments else UNKNOWN
    layers = plan.spec.models[declared.name].layers
    if layers is not None and given.shape is not None:
        traced = trace_layers(layers, given.shape, given.dtype)
        return tuple(_measure(each).on_rows_of(len(forward.ops)) for each in traced)
    if declared.kind == "parameter":
        return ()
    rows = given.shape[0] if given.shape else BATCH
    weighted = Work(((1.0, (rows, f"{COST}{declared.name}")),))
    count = sum(prod(each.shape) for each in declared.parameters)
    return (LayerWork(weighted=weighted, kernels=1, parameters=count),)


def find_type(plan: CompiledStep, operand: object) -> TensorType:
    """Return the type of a value, that of all rows for what a process has of it."""
    return plan.types.get(operand.name, UNKNOWN) if isinstance(operand, Ref) else UNKNOWN


def find_results(plan: CompiledStep, names: Iterable[str]) -> Work:
    """Return the numbers that values hold, as far as their shapes are known."""
    types = (find_type(plan, Ref(name=name)) for name in names)
    return Work(tuple((1.0, each.shape) for each in types if each.shape is not None))


def measure_evaluation(plan: CompiledStep, node: Evaluate | Random) -> Work:
    """Return what a function takes: for products what they multiply and add, else the numbers that it reads.

    What divides and weighs rows is none of the spec's, and counts nothing.
    """
    if isinstance(node, Random):
        return find_results(plan, node.defines)
    if node.family == "internal" or (node.function.builtin and node.function.name in VIEWS):
        return Work()
    shapes = [find_type(plan, each.operand).shape for each in node.arguments]
    known = [shape for shape in shapes if shape is not None]
    result = find_type(plan, Ref(name=node.outputs[0])).shape if node.outputs else None
    name = node.function.name if node.function.builtin else ""
    if name == "matmul" and result is not None and shapes[0]:
        return Work(((2.0, (*result, shapes[0][-1])),))
    if name == "einsum" and len(known) == len(shapes):
        equation = read_equation(node.options["equation"])
        sizes = {
            axis: size
            for axes, shape in zip(equation.factors, known, strict=True)
            for axis, size in zip(axes, shape, strict=False)
        }
        return Work(((2.0, tuple(sizes.values())),))
    return Work(tuple((1.0, shape) for shape in known))


def count_slots(optimizer: OptimizerDecl, shape: Shape) -> int:
    """Return how many numbers an optimizer keeps for a parameter; of a rule of the user's, as many as Adam does."""
    size = prod(each for each in shape if isinstance(each, int))
    options = optimizer.options
    match optimizer.rule if optimizer.builtin else "":
        case "sgd":
            return size * bool(options["momentum"])
        case "rmsprop":
            return size * (1 + bool(options["momentum"]) + bool(options["centered"]))
        case "adagrad" | "lion" | "lars" | "muon" | "schedule_free_sgd":
            return size
        case "adafactor":
            if len(shape) < 2:
                return size
            rows, columns = shape[-2:]
            assert isinstance(rows, int)
            assert isinstance(columns, int)
            return size // columns + size // rows
        case _:
            return 2 * size


def _measure(call: LayerCall) -> LayerWork:
    """Return the work of a layer, with what is inside it."""
    inside = [_measure(each) for each in call.layers]
    weighted, paired, plain = _count(call)
    own = Work((weighted,) if weighted[0] else ()), Work((paired,) if paired[0] else ()), Work((plain,))
    is_work = call.kind not in (*NOTHING, "spectral_norm")
    return LayerWork(
        weighted=add_up((*(each.weighted for each in inside), own[0])),
        paired=add_up((*(each.paired for each in inside), own[1])),
        plain=add_up((*(each.plain for each in inside), own[2] if plain[0] else Work())),
        kernels=sum(each.kernels for each in inside) + is_work,
        parameters=sum(prod(each.shape) for each in call.parameters),
        results=add_up((*(each.results for each in inside), Work(((1.0, call.output),) if is_work else ()))),
    )


_NONE: Term = (0.0, ())


def _count(call: LayerCall) -> tuple[Term, Term, Term]:
    """Return what a layer itself takes: products with weights, products of values, and the rest."""
    options, output = call.options, call.output
    match call.kind:
        case "linear":
            return (2.0 * _product(options["in_features"]), output), _NONE, _NONE
        case "conv1d" | "conv2d":
            inner = _product(options["in_channels"]) * _product(options["kernel_size"]) // _product(options["groups"])
            return (2.0 * inner, output), _NONE, _NONE
        case "conv_transpose2d":
            inner = _product(options["out_channels"]) * _product(options["kernel_size"]) // _product(options["groups"])
            return (2.0 * inner, call.input), _NONE, _NONE
        case "multi_head_attention":  # four projections; every position with every other, twice
            return (8.0 * _product(options["embed_dim"]), call.input), (4.0, (*call.input, call.input[1])), _NONE
        case "lstm" | "gru":
            size, both = _product(options["hidden_size"]), 2 if options["bidirectional"] else 1
            inner = GATES[call.kind] * size * (_product(options["input_size"]) + size)
            return (2.0 * both * inner, call.input[:2]), _NONE, _NONE
        case "embedding":
            return (1.0, output), _NONE, _NONE
        case "avg_pool" | "max_pool":
            return _NONE, _NONE, (float(_product(options["kernel_size"])), output)
        case "spectral_norm":  # a product with the weights and one with their transpose
            return _NONE, _NONE, (4.0, (max(prod(each.shape) for each in call.parameters),))
        case kind if kind in NOTHING:
            return _NONE, _NONE, _NONE
        case _:
            return _NONE, _NONE, (1.0, output)


def _product(value: Plain) -> int:
    """Return a whole number, or the product of some: of a kernel's sides."""
    if isinstance(value, tuple):
        return prod(_product(each) for each in value)
    assert isinstance(value, int)
    return value

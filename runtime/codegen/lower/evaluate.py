"""Lowering of pure functions: calls, losses and metrics."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import reduce

from msgspec.structs import replace

from compiler.batch.making import COLLECTIVES
from compiler.ir.instructions import Accumulate, Evaluate, Random
from compiler.ir.program import Function, InputDecl, LayerDecl
from compiler.ir.value import Dimension, Operand, Ref, Scheduled, Setting
from compiler.types.loss import OF_CLASSES
from graphspec.declare.library import COUNTED
from graphspec.declare.options import BATCH
from runtime.codegen import syntax
from runtime.codegen.dialect import Dialect, EmitScope, Lowered
from runtime.codegen.lower.messages import await_message
from runtime.codegen.resources import find_sized_input, is_replicated, is_running, is_typed
from runtime.codegen.scope import keywords, line_of, number, operand, positional, read, setting, with_notes
from runtime.codegen.text import Line


def builtin_call(instruction: Evaluate, operands: list[ast.expr], scope: EmitScope) -> ast.expr:
    """Return the call of a built-in function on its operands."""
    call = scope.dialect.call(instruction, scope)
    if instruction.open:  # the operands of a loss are wrapped in the check of their shapes: ``*matched(out, y)``
        name = instruction.function.name
        axes = [syntax.constant(count) for count in AXES.get(name, ())]
        if name in OF_CLASSES:
            axis = {"axis": setting(instruction.options["axis"], scope)} if "axis" in instruction.options else {}
            shares = {} if name == "cross_entropy" else {"shares": syntax.constant(False)}
            checked = syntax.call("matched_classes", *operands, **axis, **shares)
            operands = [syntax.spread(checked)]
        elif len(operands) == 2:
            operands = [syntax.spread(syntax.call("matched", *operands, *axes))]
        else:
            # Of three, the others are compared with the first that is no number:
            # ``a, matched(a, p, 1)[1], matched(a, n, 1)[1]``.
            places = [at for at, each in enumerate(instruction.arguments) if isinstance(each.operand, Ref)]
            checks = {at: syntax.call("matched", operands[places[0]], operands[at], *axes) for at in places[1:]}
            matched = {at: syntax.item(check, syntax.constant(1)) for at, check in checks.items()}
            operands = [matched.get(at, each) for at, each in enumerate(operands)]
    first, *rest = [syntax.sequence(operands)] if call.gathered else operands
    before = [setting(value, scope) for value in call.before]
    between = [setting(value, scope) for value in call.first]
    # `batch` in a shape is the size of the first operand's leading axis.
    rows = syntax.item(scope.dialect.shape(first), syntax.constant(0))
    after = [
        syntax.sequence(rows if each == BATCH else setting(each, scope) for each in value)
        if isinstance(value, tuple) and BATCH in value
        else setting(value, scope)
        for value in call.positional
    ]
    if is_typed(instruction):
        after.append(syntax.name("step_dtype"))
    keywords = {name: setting(value, scope) for name, value in call.keywords.items()}
    return syntax.call(call.path, *before, first, *between, *rest, *after, **keywords)


AXES: Mapping[str, tuple[int, ...]] = {
    "cosine": (1,), "kl_div": (2,), "nt_xent": (2, 2), "dice": (2,), "triplet_margin": (1,),
}  # fmt: skip
"""How many axes the operands of a loss have, at least and at most; the others also take a number."""


def options_of(instruction: Evaluate) -> dict[str, Setting]:
    """Return the options of a built-in function, how a loss is reduced among them."""
    reduced = {} if instruction.reduction is None else {"reduction": instruction.reduction}
    return {**instruction.options, **reduced}


def layer_stack(layers: tuple[LayerDecl, ...], dialect: Dialect, **options: ast.expr) -> ast.expr:
    """Return ``nn.Sequential(...)``: parameters are named by the index of their layer."""
    return syntax.call(dialect.stack, *(_layer(layer, dialect) for layer in layers), **options)


def _layer(layer: LayerDecl, dialect: Dialect) -> ast.expr:
    """Return the construction of one layer; a container takes the layers inside it."""
    made = dialect.layer(layer)
    arguments = map(syntax.literal, (*made.first, *made.positional))
    keywords = {name: syntax.literal(value) for name, value in made.keywords.items()}
    return syntax.call(made.path, *(_layer(each, dialect) for each in layer.layers), *arguments, **keywords)


UNARY: Mapping[str, ast.unaryop] = {"neg": ast.USub(), "logical_not": ast.Invert()}
COMPARISONS: Mapping[str, ast.cmpop] = {
    "less": ast.Lt(),
    "less_equal": ast.LtE(),
    "greater": ast.Gt(),
    "greater_equal": ast.GtE(),
    "equal": ast.Eq(),
    "not_equal": ast.NotEq(),
}
OPERATORS: Mapping[str, ast.operator] = {
    "add": ast.Add(),
    "sub": ast.Sub(),
    "mul": ast.Mult(),
    "div": ast.Div(),
    "matmul": ast.MatMult(),
    "weigh": ast.Mult(),
    "pow": ast.Pow(),
    "logical_and": ast.BitAnd(),
    "logical_or": ast.BitOr(),
}
"""Calls that are Python operators on tensors: of one, two that are compared, and two or more."""


JOINING: Mapping[str, str] = {"all_gather": "replicas.join_rows", "all_mean": "replicas.join_sum"}
"""The methods that give what all processes have, with the graph of what this one has."""


def find_inlined(function: Function) -> Mapping[str, Evaluate]:
    """Return the parts of expressions that are written where their value is read, by that value."""
    return {each.outputs[0]: each for each in function.instructions if isinstance(each, Evaluate) and each.into}


def lower_evaluate(instruction: Evaluate, scope: EmitScope) -> Lowered:
    """Return the call of a function, times its weight; without a graph where it would be recorded for nothing."""
    if instruction.into:
        return Lowered(code=(), graph="either")
    targets = [scope.names.value(value) for value in instruction.outputs]
    if instruction.counted:
        lines = with_notes(instruction, [line_of(instruction, each) for each in counted(instruction, targets, scope)])
        return Lowered(code=lines, graph="either") if not instruction.graph else Lowered(code=lines)
    value = _weighted(instruction, _value(instruction, scope), scope)
    statement = syntax.assign(targets[0] if len(targets) == 1 else targets, value)
    lines = with_notes(instruction, [line_of(instruction, statement)])
    if instruction.graph or not scope.flow.recorded:
        return Lowered(code=lines)
    if is_running(instruction):
        return Lowered(code=lines, graph="either")  # the call does that itself
    needless = _carries(instruction, scope) and not (instruction.constant or instruction.message)
    return Lowered(code=lines, graph="without" if needless else "either")


def _carries(instruction: Evaluate, scope: EmitScope) -> bool:
    """Return whether a graph enters a call through one of its arguments, or of the parts that are written in it."""
    operands = (argument.operand for argument in instruction.arguments)
    return any(_has_graph(each, scope) for each in operands if isinstance(each, Ref) and not each.detach)


def _has_graph(value: Ref, scope: EmitScope) -> bool:
    """Return whether a value carries a graph where it is read."""
    part = scope.inlined.get(value.name)
    if part is None or part.graph:
        return value.name in scope.flow.carrying
    return not part.constant and _carries(part, scope)


def _operand(value: Operand, instruction: Evaluate, scope: EmitScope) -> ast.expr:
    """Return an operand of a call: a part of the same expression by what it calculates.

    A part without a graph is calculated with one if the whole is, and is detached instead.
    """
    part = scope.inlined.get(value.name) if isinstance(value, Ref) else None
    if part is None or not isinstance(value, Ref):
        return operand(value, scope)
    made = _weighted(part, _value(part, scope), scope)
    is_without = value.detach or (instruction.graph and not part.graph)
    return scope.dialect.detach(made) if is_without and _has_graph(value, scope) else made


def _value(instruction: Evaluate, scope: EmitScope) -> ast.expr:
    """Return the call, an operator where there is one."""
    function = instruction.function
    if instruction.message and function.name in COLLECTIVES:
        waited = await_message(instruction, scope)
        if not instruction.graph:
            return waited
        # a gradient goes back to what this process has
        (local,) = positional(instruction.arguments, scope)
        axis = {name: setting(each, scope) for name, each in instruction.options.items() if each != 0}
        return syntax.call(JOINING[function.name], waited, local, **axis)
    if is_running(instruction):
        metric = scope.names.metric(scope.mode, instruction.op)
        given = *scope.dialect.leading(), *positional(instruction.arguments, scope)
        return syntax.call(metric, *given, **keywords(instruction.arguments, scope))
    if not function.builtin:
        called = _call_user(instruction, scope)
        if len(instruction.outputs) > 1:
            return syntax.call("results", called, *map(syntax.constant, instruction.outputs))
        # A loss may be returned as (sum, count), which means their quotient.
        received = "uncounted" if instruction.gathered else "mean_of"
        return syntax.call(received, called) if instruction.family == "loss" else called
    operands = [_operand(each.operand, instruction, scope) for each in instruction.arguments if each.name is None]
    if instruction.family in ("call", "internal"):
        if function.name == "stop":
            # what a gradient is taken by needs a tensor of its own, apart from what it is made of
            is_own = instruction.outputs[0] in scope.flow.targets or _carries(instruction, scope)
            return scope.dialect.detach(operands[0]) if is_own else operands[0]
        if function.name in ("either", "all_gather"):  # of which a process that is alone has all
            return operands[0]
        if function.name == "subscript":
            return syntax.item(operands[0], setting(instruction.options["at"], scope))
        if scope.dialect.has_operators(instruction, scope):
            if function.name in UNARY:
                return ast.UnaryOp(op=UNARY[function.name], operand=operands[0])
            if function.name in COMPARISONS:
                return ast.Compare(left=operands[0], ops=[COMPARISONS[function.name]], comparators=operands[1:])
            if operator := OPERATORS.get(function.name):
                return reduce(lambda left, right: syntax.binary(left, operator, right), operands)
    called = builtin_call(instruction, operands, scope)
    is_only = function.name in COUNTED and len(instruction.outputs) == 1  # of results that come as a tuple
    return syntax.item(called, syntax.constant(0)) if is_only else called


def counted(instruction: Evaluate, targets: list[str], scope: EmitScope) -> Iterator[ast.stmt]:
    """Yield the lines for the sum and the count of a loss: ``fit_sum, fit_count = pair_of(masked(out, y))``."""
    operands = positional(instruction.arguments, scope)
    if instruction.counted == "kept":
        total = builtin_call(replace(instruction, reduction="sum"), operands, scope)
        yield syntax.assign(targets[0], _weighted(instruction, total, scope))
        left_out = setting(instruction.options["ignore_index"], scope)
        yield syntax.assign(targets[1], syntax.call("kept_count", operands[1], left_out, operands[0]))
        return
    if instruction.counted == "elements":
        every = builtin_call(replace(instruction, reduction="none"), operands, scope)
        yield syntax.assign(targets, syntax.call("sum_and_count", every))
        yield from _weigh(instruction, targets[0], scope)
        return
    called = _call_user(instruction, scope)
    if instruction.counted == "asked":
        yield syntax.assign(targets[0], syntax.call("pieces_of", called))
        return
    like = [*operands, *keywords(instruction.arguments, scope).values()][:1] if instruction.counted == "assumed" else []
    yield syntax.assign(targets, syntax.call("pair_or_rows" if like else "pair_of", called, *like))
    yield from _weigh(instruction, targets[0], scope)


def _weigh(instruction: Evaluate, target: str, scope: EmitScope) -> Iterator[ast.stmt]:
    """Yield the line that multiplies a sum by the weight of its loss, where that has one."""
    total = syntax.name(target)
    weighted = _weighted(instruction, total, scope)
    if weighted is not total:
        yield syntax.assign(target, weighted)


def _call_user(instruction: Evaluate, scope: EmitScope) -> ast.expr:
    """Return the plain call of a user's function."""
    options = {key: setting(value, scope) for key, value in instruction.options.items()}
    if instruction.reduction is not None:
        options["reduction"] = syntax.constant(instruction.reduction)
    callee = syntax.dotted(scope.names.imported(instruction.function.name))
    operands, named = positional(instruction.arguments, scope), keywords(instruction.arguments, scope)
    return syntax.call(callee, *operands, **named, **options)


def _weighted(instruction: Evaluate, value: ast.expr, scope: EmitScope) -> ast.expr:
    """Return ``weight * value``, times how often it counts."""
    if isinstance(instruction.weight, Scheduled):
        read = number(instruction.weight, scope.names)
        times = syntax.constant(instruction.times)
        factor = read if instruction.times == 1 else syntax.binary(times, ast.Mult(), read)
        if scope.dialect.has_operators(instruction, scope) and instruction.function.builtin:
            return syntax.binary(factor, ast.Mult(), value)
        return scope.dialect.multiply(factor, value)  # the loss has an unknown type, and types may not mix
    weight = (1 if instruction.weight is None else instruction.weight) * instruction.times
    return value if weight == 1 else syntax.binary(syntax.constant(weight), ast.Mult(), value)


def lower_random(instruction: Random, scope: EmitScope) -> Lowered:
    """Return a draw under the op's name: ``z = random.normal("z", (batch_size, 32))``."""
    options = {key: setting(value, scope) for key, value in instruction.options.items()}
    is_permutation = instruction.distribution == "permutation"  # which has a length in place of a shape
    if instruction.like is not None:
        shape = scope.dialect.shape(read(instruction.like, scope))
        shape = scope.dialect.with_rows(shape, syntax.name("batch_size")) if instruction.gathered else shape
        extent = syntax.item(shape, syntax.constant(0)) if is_permutation else shape
    else:
        sizes = [size_of(dimension, scope) for dimension in instruction.shape or ()]
        extent = sizes[0] if is_permutation else syntax.sequence(sizes)
    drawn = syntax.call(f"random.{instruction.distribution}", syntax.constant(instruction.op), extent, **options)
    statement = syntax.assign(scope.names.value(instruction.output), drawn)
    lines = with_notes(instruction, [line_of(instruction, statement)])
    return Lowered(code=lines, graph="either")


def size_of(dimension: Dimension, scope: EmitScope) -> ast.expr:
    """Return a size: a number, the batch size, or that of the first input with the free dimension."""
    if isinstance(dimension, int):
        return syntax.constant(dimension)
    if dimension == BATCH:
        return syntax.name("batch_size")
    return _size(find_sized_input(scope.program, dimension, scope.function), dimension, scope)


def _size(entry: InputDecl, dimension: str, scope: EmitScope) -> ast.expr:
    """Return ``image.shape[k]`` for a free dimension of an input; of one that does not declare it, the first."""
    shape = entry.shape or ()
    axis = shape.index(dimension) if dimension in shape else 0
    sizes = scope.dialect.shape(syntax.name(scope.names.value(entry.name)))
    return syntax.item(sizes, syntax.constant(axis))


def count_parts(function: Function) -> int:
    """Return how many micro-batches a step has."""
    return max((each.micro_batch for each in function.instructions), default=0) or 1


def shares_rows(function: Function) -> bool:
    """Return whether each replica runs a function on rows of its own; `infer` is for all rows."""
    return function.mode != "infer" and any(each.is_replica for each in function.instructions)


def batch_size_lines(function: Function, scope: EmitScope) -> tuple[Line, ...]:
    """Return ``batch_size = image.shape[0]`` where some draw needs it, or a window counts it."""
    draws = (each for each in function.instructions if isinstance(each, Random))
    has_draws = any(BATCH in (draw.shape or ()) or draw.gathered for draw in draws)
    is_counted = any(isinstance(each, Accumulate) and each.reduce == "mean" for each in function.instructions)
    is_shared = is_replicated(scope.program) and shares_rows(function)
    if not (is_counted or has_draws or is_shared):
        return ()
    entry = find_sized_input(scope.program, BATCH, function)
    if is_shared:
        begun = syntax.call("replicas.begin", _size(entry, BATCH, scope), syntax.constant(count_parts(function)))
        lines = [Line(statement=syntax.perform(begun), op=entry.name, place=entry.place)]
        if is_counted or has_draws:
            size = syntax.assign("batch_size", syntax.dotted("replicas.batch_size"))
            lines.append(Line(statement=size, op=entry.name, place=entry.place, comment="of all replicas"))
        return tuple(lines)
    size = syntax.assign("batch_size", _size(entry, BATCH, scope))
    return (Line(statement=size, op=entry.name, place=entry.place),)

"""Flow analysis before printing: which values carry a graph, which become leaves, which modes models need."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from compiler.ir.instructions import Adapt, Evaluate, Forward, Gradient, Instruction, Start, TakeAccumulated, Transform
from compiler.ir.program import Function, LayerDecl, ModelDecl, Program
from compiler.ir.value import Ref
from graphspec.declare.layers import BUFFERED, draws
from runtime.codegen.resources import find_functions, find_instructions

VIEWS = frozenset({"all_gather", "either", "expand", "permute", "reshape", "slice", "split", "split_rows", "subscript"})
"""Calls that may share the memory of their operand."""
SAME = frozenset({"all_gather", "either"})
"""Calls that may return their operand itself: in one process."""


class Flow(Struct, frozen=True, kw_only=True):
    """Values of a function that carry a graph, and those made leaves as targets of a gradient."""

    carrying: frozenset[str]
    targets: frozenset[str]
    """Values that gradients are taken with respect to."""
    leaves: frozenset[str]
    siblings: frozenset[str]
    """Values with a graph that gradients are taken with respect to, made by one call together with others."""
    recorded: bool
    """Whether some instruction records a graph; otherwise the whole function runs without."""
    partial: frozenset[str] = frozenset()
    """Derived models that gradients are taken with respect to, and of which some weights may have no graph."""


def find_flow(function: Function) -> Flow:
    """Return the values that carry a graph in a function. Too many is safe: it costs a detach, never a wrong number."""
    targets, with_graph, is_recorded = set[str](), set[str](), False
    for each in function.instructions:
        if isinstance(each, Gradient):
            targets.update(each.target_values)
        if each.recorded:
            with_graph.update(each.defines)
        is_recorded = is_recorded or each.recorded or isinstance(each, Gradient)
    leaves = targets - with_graph  # inputs, draws, results of no_grad
    carrying = set(leaves)
    together, siblings, partial = set[str](), set[str](), set[str]()
    for instruction in function.instructions:
        made = instruction.defines
        called = instruction.function if isinstance(instruction, Evaluate) else None
        # PyTorch gives a view of an operand, which has its graph even where nothing is recorded.
        is_view = called is not None and called.builtin and called.name in VIEWS
        if (instruction.recorded or is_view) and _passes_graph(instruction, carrying):
            carrying.update(made)
        if instruction.recorded and len(made) > 1:
            together.update(made)
            begun = instruction.begun if isinstance(instruction, Forward) else ()
            siblings.update(value for value in made if value in targets and value not in begun)
        elif called is not None and called.name in SAME and any(each.name in together for each in instruction.refs):
            together.update(made)
            siblings.update(value for value in made if value in targets)
        if isinstance(instruction, Adapt) and instruction.recorded and instruction.base and instruction.base.detach:
            partial.update(value for value in made if value in targets)  # a rate of its own may be a constant
    return Flow(
        carrying=frozenset(carrying),
        targets=frozenset(targets),
        leaves=frozenset(leaves),
        siblings=frozenset(siblings),
        partial=frozenset(partial),
        recorded=is_recorded,
    )


def _passes_graph(instruction: Instruction, carrying: set[str]) -> bool:
    """Return whether a recorded instruction's results carry a graph, given the values that did before it."""
    match instruction:
        case Forward():
            return not instruction.frozen or carries(instruction, carrying) or bool(instruction.begun)
        case Evaluate():
            return carries(instruction, carrying)
        case Transform():
            return not carrying.isdisjoint(instruction.inputs)
        case _:
            return True


def carries(instruction: Instruction, carrying: Collection[str]) -> bool:
    """Return whether a graph enters an instruction through one of the values that it reads."""
    return any(not each.detach and each.name in carrying for each in instruction.refs)


def find_row_sets(function: Function) -> frozenset[str]:
    """Return the gradient sets of a function in which tables have rows."""
    made = (each for each in function.instructions if isinstance(each, Gradient | Transform | TakeAccumulated))
    return frozenset(each.output for each in made if each.rows and each.output is not None)


def find_sent(function: Function) -> frozenset[str]:
    """Return the values of a function that messages take to other processes."""
    starts = (each for each in function.instructions if isinstance(each, Start))
    return frozenset(part.value for each in starts for part in each.parts)


def find_differentiated(program: Program) -> frozenset[str]:
    """Return the models that some gradient is taken for; no other model's weights ever need one."""
    instructions = find_instructions(program)
    return frozenset(model for each in instructions if isinstance(each, Gradient) for model in each.models)


def is_modal(model: ModelDecl) -> bool:
    """Return whether training and evaluation differ for a model; for a class this is assumed."""
    match model.kind:
        case "class":
            return True
        case "parameter":
            return False
        case "layers":
            return draws_numbers(model.layers) or has_layer(model.layers, BUFFERED)


def has_layer(layers: tuple[LayerDecl, ...], kinds: frozenset[str]) -> bool:
    """Return whether one of the layers, or of those inside containers, is of one of the kinds."""
    return any(layer.kind in kinds or has_layer(layer.layers, kinds) for layer in layers)


def draws_numbers(layers: tuple[LayerDecl, ...]) -> bool:
    """Return whether one of the layers, or of those inside containers, draws random numbers."""
    return any(draws(layer.kind, layer.options) or draws_numbers(layer.layers) for layer in layers)


def find_modes(function: Function, program: Program, mixed: frozenset[str]) -> dict[str, bool]:
    """Return, by model, the mode (train or not) of its first forward in a function.

    Models that share weights may share modules: they are put into the same mode, except mixed ones, which are left
    out.
    """
    modes: dict[str, bool] = {}
    for model, train in find_runs(function):
        if model not in mixed:
            modes.setdefault(model, train)
            for other in program.model(model).tied:
                modes.setdefault(other, train)
    return modes


def find_runs(function: Function) -> Iterator[tuple[str, bool]]:
    """Yield the forwards of a function by model and mode, with those that gradients run again."""
    for instruction in function.instructions:
        if isinstance(instruction, Forward):
            yield instruction.model, instruction.train
        elif isinstance(instruction, Gradient):
            yield from ((each.model, each.train) for each in instruction.recomputed)


def find_mixed(program: Program) -> frozenset[str]:
    """Return the models of which one runs in training and another, with shared weights, in evaluation in one step.

    The mode that one of them sets in a shared module holds for the other: each is switched before every run.
    """
    found: set[str] = set()
    for function in find_functions(program):
        runs = {*find_runs(function)}
        for model, train in runs:
            group = (model, *program.model(model).tied)
            if len(group) > 1 and any((other, not train) in runs for other in group):
                found.update(group)
    return frozenset(found)


def find_through(instructions: Sequence[Instruction], path: Collection[int]) -> Mapping[str, tuple[str, ...]]:
    """Return, by forward on the path of a gradient, the cell versions that must still be unchanged: ``net.params@0``.

    These are saved by autograd without a copy: weights, and buffers where the forward is in evaluation mode.
    Statistics that a forward in training reads are not needed for its gradient.
    """
    forwards = [each for each in instructions if isinstance(each, Forward) and id(each) in path]
    kept: dict[str, tuple[str, ...]] = {}
    for each in forwards:  # a gradient reads cells themselves, not their clones
        reads_buffers, reads_weights = not each.train and each.snapshot == "none", each.snapshot != "all"
        saved = [at for at in each.reads if (reads_buffers if at.cell.kind == "buffers" else reads_weights)]
        kept[each.op] = tuple(map(str, saved))
    return {op: reads for op, reads in kept.items() if reads}


def find_gradient_paths(
    instructions: Sequence[Instruction], producers: Mapping[str, Instruction], program: Program
) -> Mapping[int, frozenset[int]]:
    """Return, by id of a gradient, the ids of the instructions on a differentiable path from its targets to its loss.

    A gradient on the path adds its own path: differentiating it again reads all of that. ``producers``: what makes each
    value.
    """
    places = {id(each): place for place, each in enumerate(instructions)}
    paths: dict[int, frozenset[int]] = {}
    for gradient in (each for each in instructions if isinstance(each, Gradient)):  # inner ones come first
        reaching = {*find_reaching(gradient.loss, producers)}
        reaching = reaching.union(*(paths[each] for each in reaching if each in paths))
        listed = [instructions[place] for place in sorted(places[each] for each in reaching)]
        paths[id(gradient)] = find_path(gradient, listed, producers, paths, program)
    return paths


def find_path(
    gradient: Gradient,
    reaching: Sequence[Instruction],
    producers: Mapping[str, Instruction],
    inner: Mapping[int, frozenset[int]],
    program: Program,
) -> frozenset[int]:
    """Return the ids of those on the path of a gradient, of the instructions that lead to its loss."""
    derived: set[int] = set()
    models = find_holders(gradient, program)
    used = {value for each in reaching for value in _find_uses(each)} | {gradient.loss}
    for each in reaching:
        match each:  # whether the gradient runs back from it to the parameters of its model
            case Forward(weights=None, frozen=False, model=model) | Adapt(base=None, model=model):
                is_target = model in models
            case _:
                is_target = False
        # A gradient may be taken with respect to a tap of a call, of a loss computed from its other results.
        begun = each.begun if isinstance(each, Forward) else ()
        taps = [value for value in begun if value in gradient.target_values]
        if (
            is_target
            or any(other in used for value in taps for other in each.defines if other != value)
            or any(
                value in gradient.target_values or (value in producers and id(producers[value]) in derived)
                for value in _find_uses(each)
            )
            or not derived.isdisjoint(inner.get(id(each), ()))
        ):
            derived.add(id(each))
    return frozenset(derived).union(*(inner[each] for each in derived if each in inner))


def find_reaching(loss: str, producers: Mapping[str, Instruction]) -> Iterator[int]:
    """Yield the ids of the instructions from which a recorded path leads to a value."""
    pending, seen = [loss], {loss}
    while pending:
        producer = producers.get(pending.pop())
        if producer is None or not producer.recorded:
            continue
        yield id(producer)
        following = [value for value in _find_uses(producer) if value not in seen]
        seen.update(following)
        pending.extend(following)


def find_rerun(function: Function, program: Program) -> Mapping[int, tuple[int, Forward]]:
    """Return, by id, the forwards that run again when a gradient is taken through them, each with its position."""
    return {
        id(each): (at, each)
        for at, each in enumerate(function.instructions)
        if isinstance(each, Forward) and is_recomputed(each, program)
    }


def is_recomputed(forward: Forward, program: Program) -> bool:
    """Return whether a forward runs again, in whole or in part, when a gradient is taken through it."""
    return forward.checkpoint or program.model(forward.model).recomputes


def _find_uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the values through which a graph enters an instruction."""
    match instruction:
        case Forward() | Evaluate() | Adapt():
            return tuple(each.name for each in instruction.refs if not each.detach)
        case Gradient():
            return (instruction.loss, *(each.name for each in instruction.grad_outputs if isinstance(each, Ref)))
        case _:
            return instruction.operands if instruction.recorded else ()


def find_holders(gradient: Gradient, program: Program) -> frozenset[str]:
    """Return the models whose calls read weights that a gradient is taken for: its own, and those that share theirs."""
    awake = [name for name in gradient.models if name not in gradient.fully_frozen]
    return frozenset(awake).union(*(program.model(name).tied for name in awake))

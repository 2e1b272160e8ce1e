"""Lowering of writes: optimizer steps, weight averages and copies."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from compiler.ir.instructions import Apply, ApplyPart, Assign, Blend
from compiler.ir.value import Scheduled
from compiler.ir.weight_terms import Projection
from runtime.codegen import syntax
from runtime.codegen.averages import number_decay
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.row_sets import has_rows, step_rows
from runtime.codegen.lower.transform import apply_present
from runtime.codegen.needs import are_tied, follows_buffers
from runtime.codegen.resources import averaged_keys, chosen_list
from runtime.codegen.scope import line_of, number, read_comment, setting, with_notes, write_comment
from runtime.codegen.text import Line


def lower_apply(instruction: Apply, scope: EmitScope) -> Lowered:
    """Return one optimizer step per part; the reason for their place in the order comes before the first."""
    lines: list[Line] = []
    for part in instruction.parts:
        share = _taken(part, scope)
        step = (
            apply_present(part, share, scope)
            if part.may_miss
            else step_rows(part, share, scope)
            if instruction.rows and has_rows(part, scope.program)
            else syntax.method(syntax.name(scope.names.optimizer(part.optimizer)), "apply", share)
        )
        lines.append(line_of(instruction, syntax.perform(step), comment=write_comment(instruction, part.models)))
    lines += [
        line_of(instruction, syntax.perform(_project(each, instruction, scope))) for each in instruction.projections
    ]
    return Lowered(code=with_notes(instruction, lines))


def _project(projection: Projection, instruction: Apply, scope: EmitScope) -> ast.expr:
    """Return the line that makes stepped parameters satisfy a constraint: ``clip_weights(net_params, -1.0, 1.0)``."""
    part = next(each for each in instruction.parts if projection.model in each.models)
    listed = chosen_list(projection.model, projection.match, scope.names)
    axis = {} if projection.axis is None else {"axis": syntax.literal(projection.axis)}
    # A number comes after the update, and does not count it.
    low, high = (
        number(each, scope.names, is_after=True) if isinstance(each, Scheduled) else syntax.constant(each)
        for each in (projection.low, projection.high)
    )
    match projection.kind:
        case "clip":
            made = syntax.call("clip_weights", listed, low, high)
        case "non_negative":
            made = syntax.call("make_non_negative", listed)
        case "unit_norm":
            made = syntax.call("make_unit_norm", listed, **axis)
        case "max_norm":
            made = syntax.call("limit_norm", listed, high, **axis)
        case "function":
            made = syntax.call("project_onto", listed, syntax.dotted(scope.names.imported(projection.function)))
    if not (part.may_miss or part.excluded):
        return made
    (chosen, *limits), options = made.args, {each.arg: each.value for each in made.keywords if each.arg}
    every = scope.names.own(part.optimizer) if part.excluded else scope.names.joint(part.models)
    stepped = syntax.name(every), _taken(replace(part, is_divided=False), scope)
    return syntax.call("over_stepped", made.func, chosen, *stepped, *limits, **options)


def _taken(part: ApplyPart, scope: EmitScope) -> ast.expr:
    """Return an optimizer's share of a gradient set."""
    gradients = syntax.name(scope.names.value(part.gradients))
    if part.excluded or part.is_divided:
        return syntax.call("taken", gradients, syntax.name(scope.names.own_places(part.optimizer, part.covers)))
    if part.covers == part.models:
        return gradients
    if are_tied(part.models, scope.program):
        return _share(gradients, part, part.models, scope)
    shares = [_share(gradients, part, (model,), scope) for model in part.models]
    return shares[0] if len(shares) == 1 else syntax.sequence(syntax.spread(each) for each in shares)


def _share(gradients: ast.expr, part: ApplyPart, models: tuple[str, ...], scope: EmitScope) -> ast.expr:
    """Return the gradients of a model, or of some that share parameters, out of a set over several models."""
    place = syntax.name(scope.names.part(part.covers, models))
    return (
        syntax.call("taken", gradients, place)
        if are_tied(part.covers, scope.program)
        else syntax.item(gradients, place)
    )


def lower_blend(instruction: Blend, scope: EmitScope) -> Lowered:
    """Return the average of the weights, then the lines for the buffers."""
    comment = _follow_comment(instruction)
    lists = [_weights(each, scope) for each in (instruction.target, instruction.source)]
    iterations = () if instruction.progress is None else instruction.progress.iterations
    is_one = len(iterations) < 2
    decay = setting(instruction.decay, scope) if is_one else number_decay(instruction, iterations, scope)
    writes: list[ast.expr] = []
    if instruction.averaging:
        kept = (
            syntax.sequence((syntax.name(scope.names.optimizer(name)), syntax.constant(share)))
            for name, share in instruction.averaging
        )
        writes.append(syntax.call("copy_averages", *lists, *kept))
    elif instruction.match is None and instruction.exclude is None:
        writes.append(syntax.call("blend", *lists, decay))
    else:
        averaged, copied = (syntax.name(scope.names.chosen(each)) for each in averaged_keys(instruction))
        writes.append(syntax.call("blend", *(syntax.call("taken", each, averaged) for each in lists), decay))
        writes.append(syntax.call("copy_into", *(syntax.call("taken", each, copied) for each in lists)))
    if follows_buffers(instruction, scope.program):
        buffers = _buffers(instruction, scope)
        match instruction.buffers, instruction.int_buffers:  # all of them, or those that are numbers of one kind
            case "copy", "copy":
                writes.append(syntax.call("copy_into", *buffers))
            case "average", "copy":
                writes.append(syntax.call("blend_buffers", *buffers, decay))
            case _, "copy":
                writes.append(syntax.call("copy_into", *(syntax.call("whole_numbers", each) for each in buffers)))
            case policy, _:
                floats = [syntax.call("floating", each) for each in buffers]
                is_copied = policy == "copy"
                writes.append(syntax.call("copy_into", *floats) if is_copied else syntax.call("blend", *floats, decay))
    if instruction.dtype:
        dtype = syntax.dotted(f"{scope.dialect.prefix}.{instruction.dtype}")
        drawn = [syntax.name("random"), syntax.constant(instruction.op)] if instruction.drawing else []
        writes.append(syntax.call("round_at_random" if drawn else "round_to", lists[0], dtype, *drawn))
    lines = [line_of(instruction, syntax.perform(each)) for each in writes]
    return Lowered(code=with_notes(instruction, [replace(lines[0], comment=comment), *lines[1:]]))


def written_lists(instruction: Apply | Blend | Assign, scope: EmitScope) -> Iterator[ast.expr]:
    """Yield the targets of a write: its optimizers, which know their parameters, or lists of weights and buffers."""
    match instruction:
        case Apply():
            yield from (syntax.name(scope.names.optimizer(part.optimizer)) for part in instruction.parts)
        case Blend() | Assign():
            yield _weights(instruction.target, scope)
            if follows_buffers(instruction, scope.program):
                yield _buffers(instruction, scope)[0]


def lower_assign(instruction: Assign, scope: EmitScope) -> Lowered:
    """Return the copy of a model's weights and buffers into another."""
    comment = _follow_comment(instruction)
    weights = [_weights(each, scope) for each in (instruction.target, instruction.source)]
    lines = [line_of(instruction, syntax.perform(syntax.call("copy_into", *weights)), comment=comment)]
    if follows_buffers(instruction, scope.program):
        copied = syntax.call("copy_into", *_buffers(instruction, scope))
        lines.append(line_of(instruction, syntax.perform(copied)))
    return Lowered(code=with_notes(instruction, lines))


def _weights(model: str, scope: EmitScope) -> ast.expr:
    """Return the list of all of a model's parameters."""
    has_own = model in scope.needs.weights
    return syntax.name(scope.names.weights(model) if has_own else scope.names.parameters(model))


def _buffers(instruction: Blend | Assign, scope: EmitScope) -> list[ast.expr]:
    """Return the lists of the target's and the source's buffers."""
    return [syntax.name(scope.names.buffers(each)) for each in (instruction.target, instruction.source)]


def _follow_comment(instruction: Blend | Assign) -> str:
    """Return ``sampler@0 -> @1, reads generator@1``."""
    written, read = write_comment(instruction, (instruction.target,)), read_comment(instruction, instruction.source)
    return ", ".join(filter(None, (written, read and f"reads {read}")))

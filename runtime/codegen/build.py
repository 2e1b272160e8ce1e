"""Emission of ``build``: models, lists of tensors, optimizers, randomness and gates, each resolved once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from msgspec.structs import fields

from compiler.ir.program import Gate, ModelDecl, Program
from compiler.ir.value import Plain
from runtime.codegen import syntax
from runtime.codegen.averages import average_globals, average_registration
from runtime.codegen.dialect import EmitContext, Global
from runtime.codegen.flow import draws_numbers
from runtime.codegen.lower.accumulate import window_globals, window_registration
from runtime.codegen.lower.evaluate import layer_stack
from runtime.codegen.lower.messages import compressor_globals, compressor_registration, replicas_global
from runtime.codegen.lower.metrics import construct_metric, registration
from runtime.codegen.lower.overflow import verdict_globals
from runtime.codegen.lower.states import initial_lines
from runtime.codegen.needs import are_tied, find_metrics
from runtime.codegen.norms import norm_globals
from runtime.codegen.optimizers import (
    construct_optimizer,
    frozen_global,
    pattern_globals,
    scheduled_globals,
    sharing_globals,
)
from runtime.codegen.resources import Names
from runtime.codegen.shards import SHARDS, divide, own_parameters
from runtime.codegen.text import Block, Code, Line

WIDEST = 100
"""Characters of names per ``global`` statement, which cannot be broken over lines."""


def emit_build(context: EmitContext) -> Block:
    """Return ``def build(seed=0, device="cpu", dtype=torch.float32, models=None):``."""
    program, dialect = context.program, context.dialect
    header = syntax.define(
        "build",
        syntax.parameter("seed", syntax.constant(program.seed)),
        syntax.parameter("device", syntax.constant("cpu")),
        syntax.parameter("dtype", syntax.dotted(dialect.dtype)),
        syntax.parameter("models", syntax.constant(None)),
        *dialect.build_parameters(),
    )
    assigned = tuple(_globals(context))
    given = ast.BoolOp(op=ast.Or(), values=[syntax.name("models"), syntax.dictionary({})])
    made = syntax.call("make_models", *map(syntax.name, ("seed", "device", "dtype")), given)
    listed = {each.name: syntax.name(context.names.optimizer(each.name)) for each in program.optimizers}
    registered = syntax.perform(syntax.call("OPTIMIZERS.update", syntax.dictionary(listed)))
    making: tuple[Code, ...] = (
        Line(statement=syntax.perform(syntax.call("MODELS.update", made))),
        *initial_lines(program, dialect),
        *(
            Line(statement=syntax.assign(each.name, each.value), comment=each.comment, op=op, place=place)
            for each in assigned
            for op, place in (each.place,)
        ),
        *(  # the dropout layers of built-in models draw keyed numbers
            Line(
                statement=syntax.perform(syntax.call("random.attach", syntax.name(context.names.model(model.name)))),
                op=model.name,
                place=model.place,
            )
            for model in (program.models if context.needs.random else ())
            if model.kind == "layers" and draws_numbers(model.layers)
        ),
        *dialect.last_lines(context, context.needs),
        *([Line(statement=registered)] if listed else []),
        *window_registration(context),
        *(compressor_registration(context) if program.parallel is not None else ()),
        *average_registration(context),
        *registration(context),
    )
    refused = (Line(statement=syntax.refuse(f"E-PACE: {each}")) for each in program.uncounted[:1])
    body = (*refused, *_global_lines(assigned), *dialect.place(making))
    return Block(header=Line(statement=header), body=body, doc=dialect.build_doc)


def _global_lines(assigned: tuple[Global, ...]) -> Iterator[Line]:
    """Yield the ``global`` statements."""
    line: list[str] = []
    for each in assigned:
        if line and len(", ".join((*line, each.name))) > WIDEST:
            yield Line(statement=syntax.share(line))
            line = []
        line.append(each.name)
    if line:
        yield Line(statement=syntax.share(line))


def _globals(context: EmitContext) -> Iterator[Global]:
    """Yield every global variable in the order of assignment."""
    program, names, dialect, needs = context.program, context.names, context.dialect, context.needs
    if needs.clock:
        yield Global(name="clock", value=syntax.call("Clock"))
    if needs.typed:
        yield Global(name="step_dtype", value=syntax.name("dtype"))
    yield from dialect.first_globals(needs)
    if program.parallel is not None:
        yield replicas_global(program.parallel)
    if program.is_sharded:
        yield Global(name=SHARDS, value=syntax.call("Shards", syntax.name("replicas")))
    for model in program.models:
        yield from _model_globals(model, context)
    for models in needs.joint:
        parts = [syntax.spread(syntax.name(names.parameters(model))) for model in models]
        every = syntax.listing(parts)
        yield Global(name=names.joint(models), value=syntax.call("once", every) if are_tied(models, program) else every)
    sliced = set[tuple[tuple[str, ...], tuple[str, ...]]]()
    tied = {covers: are_tied(covers, program) for covers in dict.fromkeys(covers for covers, _ in needs.parts)}
    for covers, models in needs.parts:
        if tied[covers]:
            own, every = names.joint(models), names.joint(covers)
            part: ast.expr = syntax.call("places", syntax.name(own), syntax.name(every))
        else:
            # A slice: it begins where that of the model before it ends, if there is one, and what is before is skipped.
            index = covers.index(models[0])
            before = covers[index - 1 : index]
            if index > 1 and (covers, before) in sliced:
                start: ast.expr = syntax.attribute(syntax.name(names.part(covers, before)), "stop")
            else:
                start = _total([_length(each, names) for each in covers[:index]])
            own = [_length(each, names) for each in models]
            part = syntax.call("slice", start, _total([start, *own] if index else own))
            sliced.add((covers, models))
        yield Global(name=names.part(covers, models), value=part)
    yield from sharing_globals(context)
    yield from scheduled_globals(context)
    yield from pattern_globals(context)
    for optimizer in program.optimizers:
        value = construct_optimizer(optimizer, context)
        yield Global(name=names.optimizer(optimizer.name), value=value, place=(optimizer.name, optimizer.place))
    yield from window_globals(context)
    if program.parallel is not None:
        yield from compressor_globals(program.parallel, context)
    yield from verdict_globals(context)
    if needs.random:
        kind = dialect.sources[program.rng]
        yield Global(name="random", value=syntax.call(kind, *map(syntax.name, dialect.random())))
    gates = {mode.mode: syntax.listing(map(_gate, mode.gates)) for mode in program.modes if mode.gates}
    if gates:
        is_drawn = any(gate.draw for mode in program.modes for gate in mode.gates)
        given = [syntax.name("clock"), syntax.dictionary(gates), *([syntax.name("seed")] if is_drawn else [])]
        yield Global(name="gates", value=syntax.call("Gates", *given))
    yield from average_globals(context)
    for mode, metric in find_metrics(program):
        value, place = construct_metric(mode, metric, context), (metric.op, metric.place)
        yield Global(name=names.metric(mode, metric.op), value=value, place=place)
    yield from norm_globals(context)
    if names.checks:
        yield Global(name=names.checks, value=syntax.call("Checks", syntax.name("MODELS"), syntax.name("OPTIMIZERS")))


def _model_globals(model: ModelDecl, context: EmitContext) -> Iterator[Global]:
    """Yield a model, and the lists of its tensors that some instruction uses."""
    program, names, needs, dialect = context.program, context.names, context.needs, context.dialect
    place = (model.name, model.place)
    variable = syntax.name(names.model(model.name))
    read = syntax.item(syntax.name("MODELS"), syntax.constant(model.name))
    made = divide(model, read, program) if program.is_sharded else read
    if model.is_synced:
        made = syntax.call("synced", made, syntax.name("replicas"))
    yield Global(name=names.model(model.name), value=made, place=place)

    def listed(*, chosen: bool) -> ast.expr:
        """Return the list of its parameters: of all, or those that its class did not freeze."""
        if program.is_sharded:
            return own_parameters(model, names, trained=chosen)
        return dialect.parameters(model, variable, chosen=chosen)

    if model.name in needs.parameters:
        is_open = model.kind == "class" and model.name in needs.differentiated
        stepped = listed(chosen=is_open)
        if model.frozen:
            yield frozen_global(model, context)
            stepped = syntax.call("without", stepped, syntax.name(names.frozen(model.name)))
        yield Global(name=names.parameters(model.name), value=stepped)
    if model.name in needs.weights:
        yield Global(name=names.weights(model.name), value=listed(chosen=False))
    if model.name in needs.buffers:
        yield Global(name=names.buffers(model.name), value=dialect.buffers(model, variable))
    if model.name in needs.taps:
        layers = [syntax.constant(layer) for layer in needs.taps[model.name]]
        yield Global(name=names.taps(model.name), value=syntax.call("watch", variable, *layers))
    if model.name in needs.drawing:
        yield from dialect.drawing(model, names)


def _length(model: str, names: Names) -> ast.expr:
    """Return the number of parameters of a model."""
    return syntax.call("len", syntax.name(names.parameters(model)))


def _total(terms: Sequence[ast.expr]) -> ast.expr:
    """Return the sum of terms."""
    if not terms:
        return syntax.constant(0)
    total: ast.expr = terms[0]
    for term in terms[1:]:
        total = syntax.binary(total, ast.Add(), term)
    return total


_PLAIN = {field.name: field.default for field in fields(Gate)}


def _gate(gate: Gate) -> ast.expr:
    """Return one gate, fields at their defaults left out."""
    values: dict[str, Plain] = {"clock": gate.clock, "every": gate.every, "start": gate.start, "until": gate.until}
    values |= {"follows": gate.follows, "datasets": gate.datasets, "epoch": gate.epoch, "flush": gate.flush}
    values |= {"first": gate.first, "last": gate.last, "counted": gate.counted}
    values |= {"counts_with": gate.counts_with}
    values |= {"draw": gate.draw, "low": gate.low, "high": gate.high}
    given = {key: syntax.literal(value) for key, value in values.items() if value != _PLAIN[key]}
    return syntax.call("Gate", syntax.constant(gate.op), **given)


MADE = "made"
"""The local dictionary of the models made so far."""
WEIGHTS = "WEIGHTS"
"""The dictionary of the files that weights are read from, by model."""


def emit_models(context: EmitContext, provided: frozenset[str]) -> Block:
    """Return ``def make_models(seed, device, dtype, given):``; models in ``provided`` are always given."""
    header = syntax.define("make_models", *map(syntax.parameter, ("seed", "device", "dtype", "given")))
    body: list[Code] = [Line(statement=syntax.assign(MADE, syntax.call("dict", syntax.name("given"))))]
    for model in context.program.models:
        if model.name in provided:
            continue
        name, files = syntax.constant(model.name), syntax.name(WEIGHTS)
        making = [*_make_lines(model, context)]
        if model.weights is not None:  # its file is read unless it was removed from the list of files
            is_listed = ast.Compare(left=name, ops=[ast.In()], comparators=[files])
            read = syntax.call("load_weights", syntax.item(syntax.name(MADE), name), name, syntax.item(files, name))
            listed = Line(statement=syntax.when(is_listed), op=model.name, place=model.place)
            loading = Line(statement=syntax.perform(read), op=model.name, place=model.place)
            making.append(Block(header=listed, body=(loading,)))
        is_absent = ast.Compare(left=name, ops=[ast.NotIn()], comparators=[syntax.name(MADE)])
        absent = Line(statement=syntax.when(is_absent), op=model.name, place=model.place)
        body.append(Block(header=absent, body=tuple(making)))
    body.append(Line(statement=syntax.give(context.dialect.finished(MADE))))
    doc = "Return every model by name: the given ones as they are, the others with their initial weights."
    return Block(header=Line(statement=header), body=tuple(body), doc=doc)


def weights_register(program: Program, provided: frozenset[str]) -> Iterator[Line]:
    """Yield ``WEIGHTS = {"net": "net.safetensors"}``, where the weights of some model come from a file."""
    files = {each.name: each.weights for each in program.models if each.weights is not None}
    named = {name: syntax.constant(file) for name, file in files.items() if name not in provided}
    if named:
        comment = "read by make_models; relative paths start from the working directory"
        yield Line(statement=syntax.assign(WEIGHTS, syntax.dictionary(named)), comment=comment)


def _make_lines(model: ModelDecl, context: EmitContext) -> Iterator[Code]:
    """Yield the lines that make a model: a copy of another, a user's class, or layers with portable weights."""
    if model.like is not None and model.initial == "copy":
        original = syntax.item(syntax.name(MADE), syntax.constant(model.like))
        yield _line(model, context.dialect.copied(model, original))
        made = syntax.item(syntax.name(MADE), syntax.constant(model.name))
        if model.compute != context.program.model(model.like).compute:
            for statement in context.dialect.lowered(model, made):
                yield Line(statement=statement, op=model.name, place=model.place)
        return
    match model.kind:
        case "class":
            arguments = {key: syntax.literal(value) for key, value in model.args.items()}
            module = syntax.call(context.names.imported(model.class_path or ""), **arguments)
        case "layers":
            module = layer_stack(model.layers, context.dialect, **context.dialect.model_options(model))
        case "parameter":
            shape = syntax.literal(model.parameters[0].shape)
            module = syntax.call("ParameterModel", shape, **context.dialect.model_options(model))
    made, contexts = _line(model, module), context.dialect.seeding(model)
    if contexts:
        seeded = syntax.within(*contexts)
        yield Block(header=Line(statement=seeded, op=model.name, place=model.place), body=(made,))
    else:
        yield made
    for statement in context.dialect.made(model, syntax.item(syntax.name(MADE), syntax.constant(model.name))):
        yield Line(statement=statement, op=model.name, place=model.place)
    if model.kind != "class":  # initial values are keyed by (seed, model, parameter)
        entries = {
            each.name: syntax.sequence(map(syntax.constant, (each.initializer.kind, each.initializer.bound)))
            for each in (*model.parameters, *model.buffers)
        }
        made = syntax.item(syntax.name(MADE), syntax.constant(model.name))
        keyed = syntax.name("seed"), syntax.constant(model.name), syntax.dictionary(entries)
        statement = syntax.perform(syntax.call("set_initial", made, *keyed))
        yield Line(statement=statement, op=model.name, place=model.place)


def _line(model: ModelDecl, value: ast.expr) -> Line:
    """Return ``made["generator"] = value``."""
    return Line(statement=syntax.assign_item(MADE, model.name, value), op=model.name, place=model.place)

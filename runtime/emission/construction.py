"""Emission of ``make_models``: every model with its initial weights, or the one the caller gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.program import Initializer, ModelDecl, Program
from runtime.emission import syntax
from runtime.emission.callees import layer_stack
from runtime.emission.dialect import Draft
from runtime.emission.text import Block, Code, Line

MADE = "made"
"""The local dictionary of the models made so far."""
WEIGHTS = "WEIGHTS"
"""The dictionary of the files that weights are read from, by model."""


def emit_models(draft: Draft, provided: frozenset[str]) -> Block:
    """Return ``def make_models(seed, device, dtype, given):``; models in ``provided`` are always given."""
    header = syntax.define("make_models", *(syntax.parameter(each) for each in ("seed", "device", "dtype", "given")))
    start = syntax.assign(MADE, syntax.call("dict", syntax.name("given")))
    body = (
        Line(statement=start),
        *(_emit_model(model, draft) for model in draft.program.models if model.name not in provided),
        Line(statement=syntax.give(draft.dialect.finished(MADE))),
    )
    doc = "Return every model by name: the given ones as they are, the others with their initial weights."
    return Block(header=Line(statement=header), body=body, doc=doc)


def _emit_model(model: ModelDecl, draft: Draft) -> Block:
    """Return the lines that make one model unless it was given."""
    absent = ast.Compare(left=syntax.constant(model.name), ops=[ast.NotIn()], comparators=[syntax.name(MADE)])
    header = Line(statement=syntax.when(absent), op=model.name, place=model.place)
    return Block(header=header, body=(*_make_lines(model, draft), *_weight_blocks(model)))


def _weight_blocks(model: ModelDecl) -> Iterator[Block]:
    """Yield the lines that read a model's file of weights, unless somebody took it out of the list of files."""
    if model.weights is not None:
        name, files = syntax.constant(model.name), syntax.name(WEIGHTS)
        is_listed = ast.Compare(left=name, ops=[ast.In()], comparators=[files])
        made = syntax.item(syntax.name(MADE), name)
        read = syntax.perform(syntax.call("load_weights", made, name, syntax.item(files, name)))
        header = Line(statement=syntax.when(is_listed), op=model.name, place=model.place)
        yield Block(header=header, body=(Line(statement=read, op=model.name, place=model.place),))


def weights_register(program: Program, provided: frozenset[str]) -> Iterator[Line]:
    """Yield ``WEIGHTS = {"net": "net.safetensors"}``, where some model that is made starts from a file."""
    files = {each.name: each.weights for each in program.models if each.weights is not None}
    named = {name: syntax.constant(file) for name, file in files.items() if name not in provided}
    if named:
        comment = "read by make_models; relative paths start from the working directory"
        yield Line(statement=syntax.assign(WEIGHTS, syntax.dictionary(named)), comment=comment)


def _make_lines(model: ModelDecl, draft: Draft) -> Iterator[Code]:
    """Yield the lines that make a model: a copy of another, a user's class, or layers with portable weights."""
    if model.like is not None and model.initial == "copy":
        original = syntax.item(syntax.name(MADE), syntax.constant(model.like))
        yield _line(model, draft.dialect.copied(model, original))
        made = syntax.item(syntax.name(MADE), syntax.constant(model.name))
        if model.compute != draft.program.model(model.like).compute:
            for statement in draft.dialect.lowered(model, made):
                yield Line(statement=statement, op=model.name, place=model.place)
        return
    made, contexts = _line(model, _construct(model, draft)), draft.dialect.seeding(model)
    if contexts:
        seeded = syntax.within(*contexts)
        yield Block(header=Line(statement=seeded, op=model.name, place=model.place), body=(made,))
    else:
        yield made
    for statement in draft.dialect.made(model, syntax.item(syntax.name(MADE), syntax.constant(model.name))):
        yield Line(statement=statement, op=model.name, place=model.place)
    if model.kind != "class":
        yield _initial_line(model)


def _line(model: ModelDecl, value: ast.expr) -> Line:
    """Return ``made["generator"] = value``."""
    return Line(statement=syntax.assign_item(MADE, model.name, value), op=model.name, place=model.place)


def _construct(model: ModelDecl, draft: Draft) -> ast.expr:
    """Return the module of a model: of a user's class, of built-in layers, or one parameter."""
    match model.kind:
        case "class":
            arguments = {key: syntax.literal(value) for key, value in model.args.items()}
            return syntax.call(draft.names.imported(model.class_path or ""), **arguments)
        case "layers":
            return layer_stack(model.layers, draft.dialect, **draft.dialect.model_options(model))
        case "parameter":
            shape = syntax.literal(model.parameters[0].shape)
            return syntax.call("ParameterModel", shape, **draft.dialect.model_options(model))


def _initial_line(model: ModelDecl) -> Line:
    """Return the line that gives parameters and buffers their initial values, keyed by (seed, model, parameter)."""
    entries = {each.name: _initial(each.initializer) for each in (*model.parameters, *model.buffers)}
    statement = syntax.perform(
        syntax.call(
            "set_initial",
            syntax.item(syntax.name(MADE), syntax.constant(model.name)),
            syntax.name("seed"),
            syntax.constant(model.name),
            syntax.dictionary(entries),
        )
    )
    return Line(statement=statement, op=model.name, place=model.place)


def _initial(initializer: Initializer) -> ast.expr:
    """Return an initializer as ``("uniform", 0.125)``."""
    return syntax.sequence((syntax.constant(initializer.kind), syntax.constant(initializer.bound)))

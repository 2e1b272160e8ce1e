"""Emission of ``build``: models, lists of tensors, optimizers, randomness and gates, each resolved once."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.program import Gate, ModelDecl, Plain, Program
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.emission.flow import DRAWING_LAYERS, has_layer
from runtime.backends.torch.emission.measuring import construct_metric, registration
from runtime.backends.torch.emission.names import Names
from runtime.backends.torch.emission.needs import Needs, find_metrics, find_needs
from runtime.backends.torch.emission.optimizers import construct_optimizer
from runtime.backends.torch.emission.text import Block, Code, Line

WIDEST = 100
"""Characters of names per ``global`` statement, which has no way to be broken over lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Global:
    """A global variable that ``build`` assigns."""

    name: str
    value: ast.expr
    comment: str = ""
    place: tuple[str, str] = ("", "")


def emit_build(program: Program, names: Names) -> Block:
    """Return ``def build(seed=0, device="cpu", dtype=torch.float32, models=None):``."""
    header = syntax.define(
        "build",
        syntax.parameter("seed", syntax.constant(program.seed)),
        syntax.parameter("device", syntax.constant("cpu")),
        syntax.parameter("dtype", syntax.dotted("torch.float32")),
        syntax.parameter("models", syntax.constant(None)),
    )
    assigned = tuple(_globals(program, names))
    made = syntax.call("make_models", *(syntax.name(each) for each in ("seed", "device", "dtype")), _given())
    body: tuple[Code, ...] = (
        *_global_lines(assigned),
        Line(statement=syntax.perform(syntax.call("MODELS.update", made))),
        *(_assignment(each) for each in assigned),
        *_attach_lines(program, names),
        *_freeze_lines(program, names),
        *_registration(program, names),
        *registration(program, names),
    )
    doc = "Make models and optimizers, once, before the first step; given models are put into training mode."
    return Block(header=Line(statement=header), body=body, doc=doc)


def _given() -> ast.expr:
    """Return ``models or {}``."""
    return ast.BoolOp(op=ast.Or(), values=[syntax.name("models"), syntax.dictionary({})])


def _global_lines(assigned: tuple[Global, ...]) -> Iterator[Line]:
    """Yield the ``global`` statements."""
    line: list[str] = []
    for name in (each.name for each in assigned):
        if line and len(", ".join((*line, name))) > WIDEST:
            yield Line(statement=ast.Global(names=line))
            line = []
        line = [*line, name]
    if line:
        yield Line(statement=ast.Global(names=line))


def _assignment(entry: Global) -> Line:
    """Return ``name = value``."""
    op, place = entry.place
    return Line(statement=syntax.assign(entry.name, entry.value), comment=entry.comment, op=op, place=place)


def _globals(program: Program, names: Names) -> Iterator[Global]:
    """Yield every global variable in the order of its making."""
    needs = find_needs(program)
    if needs.clock:
        yield Global(name="clock", value=syntax.call("Clock"))
    for model in program.models:
        yield from _model_globals(model, names, needs)
    for models in needs.joint:
        parts = [syntax.spread(syntax.name(names.parameters(model))) for model in models]
        yield Global(name=names.joint(models), value=syntax.listing(parts))
    for covers, model in needs.parts:
        yield Global(name=names.part(covers, model), value=_slice(covers, model, names))
    for optimizer in program.optimizers:
        value = construct_optimizer(optimizer, names)
        yield Global(name=names.optimizer(optimizer.name), value=value, place=(optimizer.name, optimizer.place))
    if needs.random:
        kind = "PortableRandom" if program.rng == "portable" else "NativeRandom"
        yield Global(name="random", value=syntax.call(kind, *map(syntax.name, ("seed", "device", "dtype"))))
    if needs.gates:
        yield Global(name="gates", value=syntax.call("Gates", syntax.name("clock"), _gates(program)))
    for mode, metric in find_metrics(program):
        value, place = construct_metric(metric, names), (metric.op, metric.place)
        yield Global(name=names.metric(mode, metric.op), value=value, place=place)
    if names.checks:
        yield Global(name=names.checks, value=syntax.call("Checks", syntax.name("MODELS"), syntax.name("OPTIMIZERS")))


def _model_globals(model: ModelDecl, names: Names, needs: Needs) -> Iterator[Global]:
    """Yield a model, and the lists of its tensors that some instruction uses."""
    place = (model.name, model.place)
    variable = syntax.name(names.model(model.name))
    read = syntax.item(syntax.name("MODELS"), syntax.constant(model.name))
    yield Global(name=names.model(model.name), value=read, place=place)
    every = syntax.call("list", syntax.method(variable, "parameters"))
    if model.name in needs.parameters:
        is_open = model.kind == "class" and model.name in needs.differentiated
        yield Global(name=names.parameters(model.name), value=_trainable(variable) if is_open else every)
    if model.name in needs.weights:
        yield Global(name=names.weights(model.name), value=every)
    if model.name in needs.buffers:
        buffers = syntax.call("list", syntax.method(variable, "buffers"))
        yield Global(name=names.buffers(model.name), value=buffers)
    if model.name in needs.taps:
        layers = [syntax.constant(layer) for layer in needs.taps[model.name]]
        yield Global(name=names.taps(model.name), value=syntax.call("watch", variable, *layers))


def _trainable(model: ast.expr) -> ast.expr:
    """Return ``[p for p in model.parameters() if p.requires_grad]``: what a class froze itself stays frozen."""
    each = ast.comprehension(
        target=ast.Name(id="p", ctx=ast.Store()),
        iter=syntax.method(model, "parameters"),
        ifs=[syntax.dotted("p.requires_grad")],
        is_async=0,
    )
    return ast.ListComp(elt=syntax.name("p"), generators=[each])


def _slice(covers: tuple[str, ...], model: str, names: Names) -> ast.expr:
    """Return the slice of a model's gradients in a set over several models."""
    lists = [syntax.name(names.parameters(each)) for each in covers]
    index = covers.index(model)
    before = [syntax.call("len", each) for each in lists[:index]]
    upto = [*before, syntax.call("len", lists[index])]
    return syntax.call("slice", _total(before), _total(upto))


def _total(terms: Sequence[ast.expr]) -> ast.expr:
    """Return the sum of terms."""
    if not terms:
        return syntax.constant(0)
    total: ast.expr = terms[0]
    for term in terms[1:]:
        total = syntax.binary(total, ast.Add(), term)
    return total


def _freeze_lines(program: Program, names: Names) -> Iterator[Line]:
    """Yield the lines that free models from gradients nobody takes, where any is taken at all."""
    differentiated = find_needs(program).differentiated
    for model in program.models if differentiated else ():
        if model.name not in differentiated:
            frozen = syntax.method(syntax.name(names.model(model.name)), "requires_grad_", syntax.constant(False))
            comment = "no gradient is ever taken for it"
            yield Line(statement=syntax.perform(frozen), comment=comment, op=model.name, place=model.place)


def _attach_lines(program: Program, names: Names) -> Iterator[Line]:
    """Yield the lines that let the dropout layers of built-in models draw keyed numbers."""
    for model in program.models:
        if model.kind == "layers" and has_layer(model.layers, DRAWING_LAYERS) and find_needs(program).random:
            attached = syntax.call("random.attach", syntax.name(names.model(model.name)))
            yield Line(statement=syntax.perform(attached), op=model.name, place=model.place)


def _registration(program: Program, names: Names) -> Iterator[Line]:
    """Yield the line that lists the optimizers by name."""
    if program.optimizers:
        listed = {each.name: syntax.name(names.optimizer(each.name)) for each in program.optimizers}
        yield Line(statement=syntax.perform(syntax.call("OPTIMIZERS.update", syntax.dictionary(listed))))


def _gates(program: Program) -> ast.expr:
    """Return the gates by mode."""
    return syntax.dictionary(
        {mode.mode: syntax.listing(_gate(gate) for gate in mode.gates) for mode in program.modes if mode.gates}
    )


def _gate(gate: Gate) -> ast.expr:
    """Return one gate, fields at their defaults left out."""
    fields: dict[str, Plain] = {"clock": gate.clock, "every": gate.every, "start": gate.start, "until": gate.until}
    fields["follows"] = gate.follows
    plain = {field.name: field.default for field in dataclasses.fields(Gate)}
    given = {key: syntax.literal(value) for key, value in fields.items() if value != plain[key]}
    return syntax.call("Gate", syntax.constant(gate.op), **given)

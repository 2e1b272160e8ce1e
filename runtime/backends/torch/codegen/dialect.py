"""The dialect of PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from compiler.ir.instructions import Evaluate, Forward, Gradient, ResolveOverflow
from compiler.ir.program import Function, LayerDecl, ModelDecl, OptimizerDecl
from compiler.ir.value import Ref
from runtime.backends.torch.codegen.forward import lower_forward
from runtime.backends.torch.codegen.function import emit_function
from runtime.backends.torch.codegen.gradient import lower_gradient
from runtime.backends.torch.codegen.verdicts import lower_resolve
from runtime.backends.torch.library.table import resolve_function, resolve_layer
from runtime.codegen import syntax
from runtime.codegen.callee import Resolved
from runtime.codegen.dialect import Dialect, EmitContext, EmitScope, Global, Lowered
from runtime.codegen.dispatch import function_table
from runtime.codegen.lower.evaluate import options_of
from runtime.codegen.needs import Needs
from runtime.codegen.resources import is_typed
from runtime.codegen.scheduled_numbers import Form
from runtime.codegen.support_code import Imported, Library, read_library
from runtime.codegen.text import Block, Code, Line


class TorchDialect(Dialect):
    """PyTorch: eager code, graphs kept and freed as planned, weights written in place."""

    title = "PyTorch"
    framework = "torch"
    model_type = "nn.Module"
    dtype = "torch.float32"
    prefix = "torch"
    held = "torch.Tensor"
    own: Mapping[str, Imported] = {
        "F": ("torch.nn.functional", None, "F"),
        "checkpoint": ("torch.utils.checkpoint", "checkpoint", None),
        "copy": ("copy", None, None),
        "nn": ("torch", "nn", None),
        "partial": ("functools", "partial", None),
        "torch": ("torch", None, None),
    }
    reserved = ("F", "checkpoint", "device_type", "nn", "p", "partial", "torch")
    stack = "nn.Sequential"
    direct: Mapping[str, str] = {
        "sgd": "SGD",
        "adam": "Adam",
        "adamw": "AdamW",
        "adagrad": "Adagrad",
        "lion": "Lion",
        "lamb": "LAMB",
        "lars": "LARS",
        "adafactor": "Adafactor",
        "ftrl": "FTRL",
        "rprop": "Rprop",
        "muon": "Muon",
        "schedule_free_sgd": "ScheduleFreeSGD",
        "schedule_free_adamw": "ScheduleFreeAdamW",
    }
    wrapped: Mapping[str, str] = {
        "rmsprop": "torch.optim.RMSprop",
        "adadelta": "torch.optim.Adadelta",
        "adamax": "torch.optim.Adamax",
        "nadam": "torch.optim.NAdam",
    }
    pace = "clock"
    build_doc = "Make models and optimizers, once, before the first step; given models are put into training mode."

    def library(self) -> Library:
        """Return the support code."""
        return read_library("runtime.backends.torch.library")

    def function(self, function: Function, context: EmitContext) -> Block:
        """Return the function of one active set."""
        return emit_function(function, context)

    def forward(self, instruction: Forward, scope: EmitScope) -> Lowered:
        """Return the call of a model."""
        return lower_forward(instruction, scope)

    def gradient(self, instruction: Gradient, scope: EmitScope) -> Lowered:
        """Return ``torch.autograd.grad``."""
        return lower_gradient(instruction, scope)

    def resolve_overflow(self, instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
        """Return the end of a step with verdicts."""
        return lower_resolve(instruction, scope)

    def range(self, op: str) -> ast.expr:
        """Return ``torch.profiler.record_function("step_d")``."""
        return syntax.call("torch.profiler.record_function", syntax.constant(op))

    def output(self, value: ast.expr) -> ast.expr:
        """Return ``value.detach()``."""
        return syntax.method(value, "detach")

    def detach(self, value: ast.expr) -> ast.expr:
        """Return ``value.detach()``."""
        return syntax.method(value, "detach")

    def unite(self, values: Sequence[ast.expr]) -> ast.expr:
        """Return ``torch.cat([one, other])``."""
        return syntax.call("torch.cat", syntax.listing(values))

    def cut(self, value: ast.expr, first: ast.expr, count: int) -> ast.expr:
        """Return ``value.split(len(first))``."""
        return syntax.method(value, "split", syntax.call("len", first))

    def present(self, gradients: ast.expr) -> ast.expr:
        """Return the set unchanged: None represents an absent gradient."""
        return gradients

    def shape(self, value: ast.expr) -> ast.expr:
        """Return ``value.shape``."""
        return syntax.attribute(value, "shape")

    def with_rows(self, shape: ast.expr, rows: ast.expr) -> ast.expr:
        """Return ``(batch_size, *x.shape[1:])``."""
        return syntax.sequence([rows, syntax.spread(syntax.rest(shape))])

    def read_state(self, held: ast.expr) -> ast.expr:
        """Return the tensor, which nothing overwrites."""
        return held

    def return_state(self, held: ast.expr) -> ast.expr:
        """Return a copy, which the caller may overwrite."""
        return syntax.method(held, "clone")

    def store(self, held: ast.expr, value: ast.expr, *, is_number: bool) -> ast.stmt:
        """Return ``STATE["queue"] = next_state(value, STATE["queue"])``: another tensor replaces the old one."""
        assert isinstance(held, ast.Subscript)
        target = ast.Subscript(value=held.value, slice=held.slice, ctx=ast.Store())
        return ast.Assign(targets=[target], value=syntax.call("full_state" if is_number else "next_state", value, held))

    def all_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return ``torch.stack([a, b]).all()``."""
        return syntax.method(syntax.call("torch.stack", syntax.listing(flags)), "all")

    def any_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return ``torch.stack([a, b]).any()``."""
        return syntax.method(syntax.call("torch.stack", syntax.listing(flags)), "any")

    def verdict_options(self, context: EmitContext) -> dict[str, ast.expr]:
        """Return whether the checked gradients are new tensors, which nothing else refers to."""
        return {"are_new": syntax.constant(context.program.loss_scale is not None)}

    def state_place(self) -> tuple[ast.expr, ...]:
        """Return the device."""
        return (syntax.name("device"),)

    def call(self, instruction: Evaluate, scope: EmitScope) -> Resolved:
        """Return how a built-in function is called: PyTorch's losses take tensors alone."""
        literal = any(not isinstance(argument.operand, Ref) for argument in instruction.arguments)
        name, options = instruction.function.name, options_of(instruction)
        return resolve_function(instruction.family, name, options, literal=literal, typed=is_typed(instruction))

    def scheduled(self, read: ast.expr, form: Form) -> ast.expr:
        """Return an expression that reads a Python number, or fills a tensor with it: neither waits for the device."""
        return syntax.call("filled", read, syntax.name("device"), syntax.name("dtype")) if form == "value" else read

    def layer(self, layer: LayerDecl) -> Resolved:
        """Return how a built-in layer is constructed."""
        return resolve_layer(layer.kind, layer.options)

    def parameters(self, model: ModelDecl, variable: ast.expr, *, chosen: bool) -> ast.expr:
        """Return ``list(model.parameters())``; where chosen, those that a class froze itself are left out."""
        every = syntax.method(variable, "parameters")
        if not chosen:
            return syntax.call("list", every)
        each = syntax.each_of(["p"], every, syntax.dotted("p.requires_grad"))
        return ast.ListComp(elt=syntax.name("p"), generators=[each])

    def named(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return ``model.named_parameters()``."""
        return syntax.method(variable, "named_parameters")

    def buffers(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return ``list(model.buffers())``."""
        return syntax.call("list", syntax.method(variable, "buffers"))

    def random(self) -> tuple[str, ...]:
        """Return the arguments of the source of random numbers."""
        return "seed", "device", "dtype"

    def metric_path(self, name: str) -> str:
        """Return the name of a built-in metric."""
        return resolve_function("metric", name, {}).path

    def metric(self, path: ast.expr, mode: str) -> tuple[ast.expr, ...]:
        """Return the arguments of a running metric, after the clock."""
        return path, syntax.name("device")

    def unknown_options(self, optimizer: OptimizerDecl) -> frozenset[str]:
        """Return ``fused`` where the library's own classes choose it."""
        is_direct = optimizer.builtin and optimizer.rule in self.direct
        return frozenset() if is_direct or optimizer.options.get("fused") != "auto" else frozenset({"fused"})

    def copied(self, model: ModelDecl, made: ast.expr) -> ast.expr:
        """Return a copy of a model; a class may keep functions bound to the original object."""
        return syntax.call("copied_module", made) if model.kind == "class" else super().copied(model, made)

    def made(self, model: ModelDecl, made: ast.expr) -> Iterator[ast.stmt]:
        """Yield the conversion of a model to the type of the step."""
        if model.kind == "class":
            yield syntax.perform(syntax.call("in_type", made, syntax.constant(model.name), syntax.name("dtype")))
            return
        yield syntax.perform(syntax.method(made, "to", syntax.name("dtype")))

    def finished(self, made: str) -> ast.expr:
        """Return all models, on the device and in training mode."""
        moved = syntax.method(syntax.method(syntax.name("model"), "to", syntax.name("device")), "train")
        each = syntax.each_of(["name", "model"], syntax.method(syntax.name(made), "items"))
        return ast.DictComp(key=syntax.name("name"), value=moved, generators=[each])

    def first_globals(self, needs: Needs) -> Iterator[Global]:
        """Yield the device type, from which autocast takes its rules."""
        if needs.lowered:
            kind = syntax.attribute(syntax.call("torch.device", syntax.name("device")), "type")
            yield Global(name="device_type", value=kind)

    def last_lines(self, context: EmitContext, needs: Needs) -> Iterator[Line]:
        """Yield the lines that exempt models from gradients that are never taken, where any gradient is taken."""
        for model in context.program.models if needs.differentiated else ():
            if needs.differentiated.isdisjoint((model.name, *model.tied)):
                variable = syntax.name(context.names.model(model.name))
                frozen = syntax.perform(syntax.method(variable, "requires_grad_", syntax.constant(False)))
                comment = "no gradient is ever taken for it"
                yield Line(statement=frozen, comment=comment, op=model.name, place=model.place)

    def table_lines(self, context: EmitContext) -> Iterator[Code]:
        """Yield ``FUNCTIONS = {...}``."""
        table = function_table(context, lambda function: syntax.name(context.names.function(function.name)))
        yield Line(statement=syntax.assign("FUNCTIONS", table))

    def start_lines(self, needs: Needs) -> Iterator[Line]:
        """Yield the line that keys the draws of the step."""
        if needs.random:
            keyed = syntax.call("random.start", syntax.name("mode"), syntax.name("number"))
            yield Line(statement=syntax.perform(keyed), comment="keys the step's draws")


TORCH = TorchDialect()

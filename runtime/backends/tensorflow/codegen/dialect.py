"""The dialect of TensorFlow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from compiler.ir.instructions import Evaluate, Forward, Gradient, ResolveOverflow
from compiler.ir.program import Function, LayerDecl, ModelDecl, OptimizerDecl, Program
from compiler.ir.value import Constant
from graphspec.declare.options import BATCH
from runtime.backends.tensorflow.codegen.floating import FLOATING_TYPES, begins_with_tensor, takes_floating
from runtime.backends.tensorflow.codegen.forward import lower_forward
from runtime.backends.tensorflow.codegen.function import ONLY, emit_function, is_numbered
from runtime.backends.tensorflow.codegen.gradient import lower_gradient
from runtime.backends.tensorflow.codegen.verdicts import lower_resolve, verdict_options
from runtime.backends.tensorflow.library.table import resolve_function, resolve_layer
from runtime.codegen import syntax
from runtime.codegen.callee import Resolved
from runtime.codegen.dialect import Dialect, EmitContext, EmitScope, Global, Lowered
from runtime.codegen.dispatch import function_table
from runtime.codegen.lower.evaluate import options_of, shares_rows
from runtime.codegen.needs import Needs
from runtime.codegen.resources import Names, find_functions, find_inputs
from runtime.codegen.scheduled_numbers import Form
from runtime.codegen.support_code import Imported, Library, read_library
from runtime.codegen.text import Block, Code, Line


class TensorFlowDialect(Dialect):
    """TensorFlow: explicit tapes over explicit variables, one graph per active set, traced once."""

    title = "TensorFlow"
    framework = "tensorflow"
    model_type = "object"
    dtype = "tf.float32"
    prefix = "tf"
    held = "tf.Variable"
    own_window = "OwnWindow"
    own: Mapping[str, Imported] = {"copy": ("copy", None, None), "tf": ("tensorflow", None, "tf")}
    reserved = (ONLY, "jit_compile", "steps", "tf")
    stack = "Sequential"
    direct: Mapping[str, str] = {
        "sgd": "SGD",
        "adam": "Adam",
        "adamw": "AdamW",
        "rmsprop": "RMSprop",
        "adagrad": "Adagrad",
        "adadelta": "Adadelta",
        "adamax": "Adamax",
        "nadam": "NAdam",
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
    wrapped: Mapping[str, str] = {}
    pace = "steps"
    decay = "FedDecay"
    feeds = True
    build_doc = "Make models, optimizers and graphs, once, before the first step."

    def library(self) -> Library:
        """Return the support code."""
        return read_library("runtime.backends.tensorflow.library")

    def name_requests(self, program: Program) -> Iterator[tuple[str, str, str]]:
        """Yield the names needed for tapes, and for the generators of users' models."""
        for function in find_functions(program):
            gradients = (each for each in function.instructions if isinstance(each, Gradient))
            yield from (("tape", each.key, f"{each.key}_tape") for each in gradients)
        for model in program.models:
            yield "generators", model.name, f"{model.name}_generators"

    def function(self, function: Function, context: EmitContext) -> Block:
        """Return the function of one active set."""
        return emit_function(function, context)

    def forward(self, instruction: Forward, scope: EmitScope) -> Lowered:
        """Return the call of a model."""
        return lower_forward(instruction, scope)

    def gradient(self, instruction: Gradient, scope: EmitScope) -> Lowered:
        """Return ``gradients(tape, loss, targets)``."""
        return lower_gradient(instruction, scope)

    def resolve_overflow(self, instruction: ResolveOverflow, scope: EmitScope) -> Lowered:
        """Return the end of a step with verdicts."""
        return lower_resolve(instruction, scope)

    def all_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return ``tf.reduce_all([a, b])``."""
        return syntax.call("tf.reduce_all", syntax.listing(flags))

    def any_true(self, flags: Sequence[ast.expr]) -> ast.expr:
        """Return ``tf.reduce_any([a, b])``."""
        return syntax.call("tf.reduce_any", syntax.listing(flags))

    def verdict_options(self, context: EmitContext) -> dict[str, ast.expr]:
        """Return how many gradients every update has, and the ops that run only under verdicts."""
        return verdict_options(context)

    def range(self, op: str) -> ast.expr:
        """Return ``tf.name_scope("step_d/")``: the slash makes one scope of an op's parts; none begins with ``_``."""
        return syntax.call("tf.name_scope", syntax.constant(f"{op.lstrip('_') or 'op'}/"))

    def output(self, value: ast.expr) -> ast.expr:
        """Return the value: what is returned is recorded on no tape."""
        return value

    def detach(self, value: ast.expr) -> ast.expr:
        """Return ``tf.stop_gradient(value)``."""
        return syntax.call("tf.stop_gradient", value)

    def unite(self, values: Sequence[ast.expr]) -> ast.expr:
        """Return ``tf.concat([one, other], 0)``."""
        return syntax.call("tf.concat", syntax.listing(values), syntax.constant(0))

    def cut(self, value: ast.expr, first: ast.expr, count: int) -> ast.expr:
        """Return ``tf.split(value, [tf.shape(first)[0], -1])``."""
        rows = syntax.item(syntax.call("tf.shape", first), syntax.constant(0))
        return syntax.call("tf.split", value, syntax.listing([rows] * (count - 1) + [syntax.constant(-1)]))

    def present(self, gradients: ast.expr) -> ast.expr:
        """Return ``zeros_for_absent(step_collected)``."""
        return syntax.call("zeros_for_absent", gradients)

    def shape(self, value: ast.expr) -> ast.expr:
        """Return ``tf.shape(value)``."""
        return syntax.call("tf.shape", value)

    def with_rows(self, shape: ast.expr, rows: ast.expr) -> ast.expr:
        """Return ``tf.concat([[batch_size], tf.shape(x)[1:]], 0)``."""
        sizes = syntax.listing([syntax.listing([rows]), syntax.rest(shape)])
        return syntax.call("tf.concat", sizes, syntax.constant(0))

    def read_state(self, held: ast.expr) -> ast.expr:
        """Return ``STATE["queue"].read_value()``."""
        return syntax.method(held, "read_value")

    def return_state(self, held: ast.expr) -> ast.expr:
        """Return ``STATE["queue"].read_value()``."""
        return syntax.method(held, "read_value")

    def store(self, held: ast.expr, value: ast.expr, *, is_number: bool) -> ast.stmt:
        """Return ``write_state(STATE["queue"], value)``."""
        return syntax.perform(syntax.call("fill_state" if is_number else "write_state", held, value))

    def call(self, instruction: Evaluate, scope: EmitScope) -> Resolved:
        """Return how a built-in function is called: TensorFlow's own do not mix types."""
        floating = takes_floating(instruction, scope.floating) and begins_with_tensor(instruction)
        options, constant = options_of(instruction), not instruction.recorded
        name = instruction.function.name
        return resolve_function(instruction.family, name, options, floating=floating, constant=constant)

    def multiply(self, factor: ast.expr, value: ast.expr) -> ast.expr:
        """Return ``mul(factor, value)``."""
        return syntax.call("mul", factor, value)

    def scheduled(self, read: ast.expr, form: Form) -> ast.expr:
        """Return a read of a tensor: an option stays in double precision, everything else has the type of the step."""
        return read if form == "option" else syntax.call("in_step_type", read, syntax.name("dtype"))

    def layer(self, layer: LayerDecl) -> Resolved:
        """Return how a built-in layer is constructed."""
        return resolve_layer(layer.kind, layer.options)

    def has_operators(self, instruction: Evaluate, scope: EmitScope) -> bool:
        """Return whether all operands are floating tensors of one type, or numbers, or all are masks."""
        match instruction.function.name:
            case "logical_and" | "logical_or" | "logical_not":
                return True
            case "equal" | "not_equal":
                return False  # `==` says False where shapes do not fit
            case "pow":
                x, exponent = (each.operand for each in instruction.arguments)
                is_zero = not isinstance(exponent, Constant) or exponent.value == 0
                if is_zero and not isinstance(x, Constant):
                    return False  # the gradient of `x ** 0` at 0 is no number
            case _:
                pass
        return takes_floating(instruction, scope.floating)

    def leading(self) -> tuple[ast.expr, ...]:
        """Return the step number, by which a running metric drops a step that failed."""
        return (syntax.name("number"),)

    def parameters(self, model: ModelDecl, variable: ast.expr, *, chosen: bool) -> ast.expr:
        """Return the list of a model's parameters."""
        is_own = model.kind != "class"
        return syntax.method(variable, "parameters") if is_own else syntax.call("parameters_of", variable)

    def named(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return the items of ``model.named_parameters()``."""
        is_own = model.kind != "class"
        named = syntax.method(variable, "named_parameters") if is_own else syntax.call("named_parameters", variable)
        return syntax.method(named, "items")

    def buffers(self, model: ModelDecl, variable: ast.expr) -> ast.expr:
        """Return the list of a model's buffers."""
        return syntax.method(variable, "buffers") if model.kind != "class" else syntax.call("buffers_of", variable)

    def random(self) -> tuple[str, ...]:
        """Return the arguments of the source of random numbers."""
        return "seed", "dtype"

    def metric_path(self, name: str) -> str:
        """Return the name of a built-in metric."""
        return resolve_function("metric", name, {}).path

    def metric(self, path: ast.expr, mode: str) -> tuple[ast.expr, ...]:
        """Return the arguments of a running metric, after the clock."""
        return syntax.constant(mode), path

    def unknown_options(self, optimizer: OptimizerDecl) -> frozenset[str]:
        """Return ``fused`` where it is left to the framework: there is only one way."""
        return frozenset() if optimizer.options.get("fused") is True else frozenset({"fused"})

    def build_parameters(self) -> tuple[tuple[str, ast.expr | None], ...]:
        """Return ``jit_compile=False``."""
        return (syntax.parameter("jit_compile", syntax.constant(False)),)

    def place(self, lines: tuple[Code, ...]) -> tuple[Code, ...]:
        """Return the lines under ``with tf.device(device):``."""
        header = Line(statement=syntax.within(syntax.call("tf.device", syntax.name("device"))))
        return (Block(header=header, body=lines),)

    def model_options(self, model: ModelDecl) -> dict[str, ast.expr]:
        """Return the type of the variables, and that in which the model computes where it is another."""
        return {"dtype": syntax.name("dtype"), **_compute(model)}

    def seeding(self, model: ModelDecl) -> tuple[ast.expr, ...]:
        """Return the seed of a user's class, and the context that sets the types of its variables and its computation.

        Making built-in layers draws nothing. Seeding TensorFlow is slow: it drops the kernels of all operations.
        """
        if model.kind != "class":
            return ()
        return *super().seeding(model), syntax.call("made_in", syntax.name("dtype"), **_compute(model))

    def copied(self, model: ModelDecl, made: ast.expr) -> ast.expr:
        """Return a copy of a model; those of Keras have no copy of their own that keeps everything."""
        return syntax.call("copied", made) if model.kind == "class" else super().copied(model, made)

    def lowered(self, model: ModelDecl, made: ast.expr) -> Iterator[ast.stmt]:
        """Yield ``made["target"].compute_in(tf.float16)`` for built-in layers; those of Keras keep what they have."""
        if model.kind == "layers":
            compute = _compute(model).get("compute", syntax.constant(None))
            yield syntax.perform(syntax.method(made, "compute_in", compute))

    def finished(self, made: str) -> ast.expr:
        """Return the dictionary of all models."""
        return syntax.name(made)

    def first_globals(self, needs: Needs) -> Iterator[Global]:
        """Yield the count of finished steps, which schedules read in the graph."""
        if needs.paced:
            count = syntax.call("tf.Variable", syntax.constant(0), dtype=syntax.dotted("tf.int64"))
            yield Global(name="steps", value=count, comment="finished train steps, for schedules")

    def drawing(self, model: ModelDecl, names: Names) -> Iterator[Global]:
        """Yield the generators of a user's model."""
        found = syntax.call("generators_of", syntax.name(names.model(model.name)))
        yield Global(name=names.generators(model.name), value=found)

    def last_lines(self, context: EmitContext, needs: Needs) -> Iterator[Line]:
        """Yield the line that makes the graphs; a build for debugging runs the functions as Python."""

        def graph(function: Function) -> ast.expr:
            """Return ``compiled(train_step, {"x": tf.TensorSpec((None, 4), dtype)}, device=device, ...)``."""
            plain = syntax.name(context.names.function(function.name))
            if context.names.checks:
                return plain
            inputs: dict[str, ast.expr] = {}
            for entry in find_inputs(context.program, function):  # free sizes are None
                free = tuple(each if isinstance(each, int) else None for each in entry.shape or ())
                sizes = None if entry.shape is None else free
                dtype = syntax.name("dtype") if entry.dtype in FLOATING_TYPES else syntax.dotted(f"tf.{entry.dtype}")
                inputs[entry.name] = syntax.call("tf.TensorSpec", syntax.literal(sizes), dtype)
            numbered = {"numbered": syntax.constant(True)} if is_numbered(context) else {}
            options = {"device": syntax.name("device"), **numbered, "jit_compile": syntax.name("jit_compile")}
            given = [plain, syntax.dictionary(inputs)]
            if context.program.parallel is None:
                return syntax.call("compiled", *given, **options)
            axes = syntax.dictionary(find_axes(function, context.program))
            return syntax.call("on_each", *given, syntax.name("replicas"), axes=axes, **options)

        yield Line(statement=syntax.perform(syntax.call("FUNCTIONS.update", function_table(context, graph))))

    def table_lines(self, context: EmitContext) -> Iterator[Code]:
        """Yield nothing: ``build`` makes the table."""
        return iter(())

    def registers(self) -> tuple[str, ...]:
        """Return the dictionary of graphs that ``build`` fills."""
        return ("FUNCTIONS",)

    def start_lines(self, needs: Needs) -> Iterator[Line]:
        """Yield the line that passes the number of finished steps to the graphs."""
        if needs.paced:
            finished = syntax.call("clock.steps.get", syntax.constant("train"), syntax.constant(0))
            yield Line(statement=syntax.perform(syntax.call("steps.assign", finished)))

    def step_arguments(self, needs: Needs) -> tuple[ast.expr, ...]:
        """Return the number of the step as a tensor."""
        if not self.is_numbered(needs):
            return ()
        return (syntax.call("tf.constant", syntax.name("number"), syntax.dotted("tf.int64")),)

    def is_numbered(self, needs: Needs) -> bool:
        """Return whether the functions are given the number of the step."""
        return needs.random or needs.measured


def find_axes(function: Function, program: Program) -> dict[str, ast.expr]:
    """Return the inputs of which every replica has its own rows, and the axis along which these lie."""
    if not shares_rows(function):
        return {}
    shapes = {entry.name: entry.shape for entry in find_inputs(program, function)}
    found = {name: (BATCH,) if shape is None else shape for name, shape in shapes.items()}  # or as PyTorch has it
    return {name: syntax.constant(shape.index(BATCH)) for name, shape in found.items() if BATCH in shape}


def _compute(model: ModelDecl) -> dict[str, ast.expr]:
    """Return ``compute=tf.float16`` for a model that computes in it."""
    return {} if model.compute == "float32" else {"compute": syntax.dotted(f"tf.{model.compute}")}


TENSORFLOW = TensorFlowDialect()

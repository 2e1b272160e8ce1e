"""Types of all values and the resolved structure of all models, as far as they are known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from compiler.facts.models import ModelFacts, Observations, find_used_models
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction, Random, Schedule, Store
from compiler.ir.value import Argument, Constant, Ref, Scheduled, Shape
from compiler.passes.order import sort_by_data
from compiler.types.dimension import UNKNOWN, ShapeProblem, TensorType, format_shape
from compiler.types.dtype import agree
from compiler.types.elementwise import is_broadcast
from compiler.types.infer import infer_call, is_open
from compiler.types.layers import ResolvedLayers, resolve_layers
from graphspec.declare.formulas import LOSS
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, Span
from graphspec.write.render import spell_formula


class Misfit(Struct, frozen=True, kw_only=True):
    """What does not fit, what was found and what was expected, and the remedy."""

    what: str
    found: str
    expected: str
    help: str


def find_misfits(state: TensorType, value: TensorType) -> Iterator[Misfit]:
    """Yield each way in which a value does not fit a state; the running step checks what is unknown here."""
    if state.shape is not None and value.shape is not None:
        found, expected = format_shape(value.shape), format_shape(state.shape)
        if any(isinstance(size, str) for size in value.shape) and _surely_differs(value.shape, state.shape):
            help = "a state outlives its batch: take a mean over the rows, or a fixed number of them with `slice`"
            yield Misfit(what="shape", found=found, expected=expected, help=help)
        elif _surely_differs(value.shape, state.shape):
            help = f"declare the state with `shape: {found}`, or give the value its shape"
            yield Misfit(what="shape", found=found, expected=expected, help=help)
    if state.dtype is not None and value.dtype is not None and not agree(value.dtype, state.dtype):
        help = f"declare the state with `dtype: {value.dtype}`"
        yield Misfit(what="dtype", found=value.dtype, expected=state.dtype, help=help)


def _surely_differs(found: Shape, fixed: Shape) -> bool:
    """Return whether a shape differs from a fixed one for every batch size."""
    if len(found) != len(fixed):
        return True
    # A size such as `max(batch, 8)` may come to the same for every batch.
    return any(
        size != other and not (isinstance(size, str) and any(mark in size for mark in ("(", "[", "//")))
        for size, other in zip(found, fixed, strict=True)
    )


def _repeats(shape: Shape) -> bool:
    """Return whether a free size stands twice in a shape."""
    free = [size for size in shape if isinstance(size, str)]
    return len(free) > len(set(free))


SOME_NUMBER = 0.5
"""Replaces a number that changes while training, where only the type of a literal matters."""


BY_SAMPLE = frozenset({"kl_div", "ctc"})
"""Losses that are means over the samples of a batch, of sums over all else or of other shares of a sample."""


class Structure(Struct, frozen=True, kw_only=True):
    """``types`` by value, ``layers`` by the model at the root of a likeness, and the problems met on the way.

    ``elements``: built-in mean -> the shape of what it is the mean of, None where that is unknown; ``open``: the
    built-in losses whose operands only the running step can check.
    """

    types: Mapping[str, TensorType]
    elements: Mapping[str, Shape | None]
    open: frozenset[str]
    layers: Mapping[str, ResolvedLayers]
    problems: tuple[Diagnostic, ...]


def find_structure(
    spec: GraphSpec, nodes: Mapping[str, Instruction], models: Mapping[str, ModelFacts], observed: Observations | None
) -> Structure:
    """Return the structure of a spec whose data edges have no cycle; walks every op once, in data order."""
    walk = _Walk(spec=spec, models=models, observed=observed or Observations())
    for name in sort_by_data(nodes):
        walk.visit(nodes[name])
    return Structure(
        types=walk.types,
        elements=walk.elements,
        open=frozenset(walk.open),
        layers=walk.layers,
        problems=tuple(walk.problems),
    )


def find_uncalled(
    spec: GraphSpec, nodes: Mapping[str, Instruction], models: Mapping[str, ModelFacts]
) -> Iterator[Diagnostic]:
    """Yield a problem for every model of layers that ops use but none calls: its input sizes are unknown."""
    called = {models[node.called].root for node in nodes.values() if node.called is not None}
    for name in spec.models:
        if name in find_used_models(spec) and spec.models[name].layers is not None and name not in called:
            yield Diagnostic(
                code="E-SHAPE",
                message=f"no op calls model '{name}', so the sizes of its layers are unknown",
                span=spec.span("models", name, key=True),
                label="never called",
                help="call it with a `forward` op, or remove the ops that only write or follow it",
            )


class _Walk(Struct, kw_only=True):
    """The state of one walk over the ops."""

    spec: GraphSpec
    models: Mapping[str, ModelFacts]
    observed: Observations
    types: dict[str, TensorType] = {}
    elements: dict[str, Shape | None] = {}
    open: set[str] = set()
    layers: dict[str, ResolvedLayers] = {}
    problems: list[Diagnostic] = []
    paired: dict[str, str] = {}
    """Values in which a free size stands twice because an op paired shapes -> where that was, for a note."""

    def __post_init__(self) -> None:
        """Start from the declared inputs and states."""
        for name, declared in self.spec.inputs.items():
            self.types[name] = TensorType(declared.shape, declared.dtype)
        for name, held in self.spec.state.items():
            self.types[name] = TensorType(held.shape, held.dtype)

    def visit(self, instruction: Instruction) -> None:
        """Infer the types of an instruction's values; those of kinds not handled here are unknown."""
        match instruction:
            case Forward():  # from the structure of the model, or as it was observed
                root = self.models[instruction.model].root
                model = self.spec.models[root]
                for value in (*instruction.outputs, *(value for value, _ in instruction.taps)):
                    self.types[value] = self.observed.outputs.get(value, UNKNOWN)
                if model.parameter is not None:
                    self.types[instruction.outputs[0]] = TensorType(model.parameter.shape, "float32")
                if model.layers is not None and instruction.arguments:
                    found = self._resolve(instruction, root, self._type(instruction.arguments[0]))
                    if found is not None and instruction.outputs:
                        self.types[instruction.outputs[0]] = TensorType(found.output, found.dtype)
            case Random():
                like = instruction.like
                shape = instruction.shape if like is None else self.types.get(like, UNKNOWN).shape
                whole = instruction.distribution in ("permutation", "randint")
                self.types[instruction.output] = TensorType(shape, "int64" if whole else "float32")
            case Schedule():
                self.types[instruction.output] = TensorType((), "float32")
            case Gradient():
                shape = self.types.get(instruction.loss, UNKNOWN).shape
                if shape is not None and any(size != 1 for size in shape) and not instruction.grad_outputs:
                    ops = self.spec.ops
                    field = "loss" if ops[instruction.op].kind == "update" else "gradient"
                    is_formula = instruction.loss == LOSS.format(instruction.op)
                    inside = spell_formula(instruction.loss, ops) if is_formula else instruction.loss
                    self._report(
                        f"'{instruction.op}' takes the gradient of '{instruction.loss}', a {format_shape(shape)}",
                        span_of(self.spec, instruction.op, field),
                        label="expected a single number",
                        help=f'take its mean or sum first: `{field}: "mean({inside})"`',
                        notes=self._find_pairings(instruction.loss),
                    )
                for value, output in zip(instruction.values, instruction.value_outputs, strict=True):
                    self.types[output] = self.types.get(value, UNKNOWN)
            case Evaluate():
                self._visit_evaluate(instruction)
            case Store():
                state, value = self.types[instruction.state], instruction.value
                found = UNKNOWN if isinstance(value, Constant) else self.types.get(value.name, UNKNOWN)
                for misfit in find_misfits(state, found):
                    written = f"'{instruction.op}' writes a value of {misfit.what} {misfit.found}"
                    self._report(
                        f"{written} into '{instruction.state}', which is of {misfit.what} {misfit.expected}",
                        span_of(self.spec, instruction.op, "value"),
                        label=f"expected {misfit.expected}",
                        help=misfit.help,
                    )
            case _:
                return

    def _visit_evaluate(self, instruction: Evaluate) -> None:
        """Infer the results of a built-in function; those of a user's function are unknown, or observed."""
        for value in instruction.outputs:
            self.types[value] = self.observed.outputs.get(value, UNKNOWN)
        if instruction.family == "internal":  # what divides by a count
            first = self._type(instruction.arguments[0])
            self.types.update({value: first for value in instruction.outputs if self.types[value] == UNKNOWN})
        if not instruction.function.builtin or instruction.family == "internal":
            return
        operands: list[TensorType | Constant] = []
        for argument in instruction.arguments:
            operand = Constant(value=SOME_NUMBER) if isinstance(argument.operand, Scheduled) else argument.operand
            operands.append(operand if isinstance(operand, Constant) else self.types.get(operand.name, UNKNOWN))
        name = instruction.function.name
        options = {
            key: SOME_NUMBER if isinstance(each, Scheduled) else each for key, each in instruction.options.items()
        }
        is_mean = instruction.family == "loss" and instruction.reduction in (None, "mean") and name not in BY_SAMPLE
        try:
            results = infer_call(name, operands, options, reduction="none" if is_mean else instruction.reduction)
        except ShapeProblem as problem:
            span = self.spec.span("ops", instruction.op, *problem.path)
            is_part = instruction.expr not in (None, "", instruction.op)
            subject = (
                f"the expression of '{instruction.expr}'" if is_part else f"{instruction.family} '{instruction.op}'"
            )
            names = (each.operand.name for each in instruction.arguments if isinstance(each.operand, Ref))
            self._report_shape(problem, span, subject, notes=self._find_pairings(*names))
            return
        if is_mean:
            (every,) = results
            self.elements[instruction.op], results = every.shape, (TensorType((), every.dtype),)
        if name == "stack" and any(use.optional for use in instruction.uses):  # there are as many as iterations run
            (whole,) = results
            results = (whole if whole.shape is None else TensorType(("iterations", *whole.shape[1:]), whole.dtype),)
        self.types.update(zip(instruction.outputs, results, strict=False))
        self._follow_pairing(instruction, operands)
        if instruction.family == "loss" and is_open(name, operands, options):
            self.open.add(instruction.op)

    def _follow_pairing(self, instruction: Evaluate, operands: Sequence[TensorType | Constant]) -> None:
        """Record where a value got a free size twice: `[batch, 1]` and `[batch]` make `[batch, batch]`."""
        shapes = [each.shape for each in operands if isinstance(each, TensorType) and each.shape is not None]
        for value in instruction.outputs:
            shape = self.types[value].shape
            if shape is None or not _repeats(shape):
                continue
            sources = (each.operand.name for each in instruction.arguments if isinstance(each.operand, Ref))
            known = next((self.paired[each] for each in sources if each in self.paired), None)
            if known is not None:
                self.paired[value] = known
            elif not any(map(_repeats, shapes)) and is_broadcast(shapes, shape):
                span = span_of(self.spec, instruction.op)
                met = " with ".join(dict.fromkeys(format_shape(each) for each in shapes if each))
                where = f"at {span.place}" if span is not None else f"in '{instruction.op}'"
                self.paired[value] = (
                    f"{format_shape(shape)} arises {where}, where `{instruction.function.name}` pairs {met}: "
                    "`reshape` one of those"
                )

    def _find_pairings(self, *names: str) -> tuple[str, ...]:
        """Return the notes on values that are not as wide as was meant."""
        return tuple(dict.fromkeys(self.paired[name] for name in names if name in self.paired))

    def _resolve(self, instruction: Forward, root: str, found: TensorType) -> ResolvedLayers | None:
        """Resolve the layers of a model for one call; the first call that can be resolved fixes the parameters."""
        layers = self.spec.models[root].layers
        if found.shape is None or layers is None:
            return None
        known = self.layers.get(root)
        try:
            resolved = resolve_layers(layers, found.shape, found.dtype)
        except ShapeProblem as problem:
            if known is None:
                place = self.spec.span("models", root, "layers", *problem.path)
                self._report_shape(problem, place, f"model '{root}', called by '{instruction.op}'")
            else:
                self._report_shape(problem, span_of(self.spec, instruction.op, "inputs"), f"call of '{root}'")
            return None
        if known is not None and known.parameters != resolved.parameters:
            shape = format_shape(found.shape)
            call = f"'{instruction.op}' calls '{instruction.model}' with {shape}"
            message = f"{call}, but another call gave '{root}' parameters of other sizes"
            help = "give both calls inputs of the same size, or declare a second model"
            span = span_of(self.spec, instruction.op, "inputs")
            self._report(message, span, label=f"this is {shape}", help=help)
            return None
        self.layers.setdefault(root, resolved)
        return resolved

    def _report_shape(
        self, problem: ShapeProblem, span: Span | None, subject: str, notes: tuple[str, ...] = ()
    ) -> None:
        """Report a shape that is certainly wrong."""
        message = f"{subject}: found {problem.found}, expected {problem.expected}"
        self._report(message, span, label=f"expected {problem.expected}", help=problem.help, notes=notes)

    def _report(self, message: str, span: Span | None, *, label: str, help: str, notes: tuple[str, ...] = ()) -> None:
        self.problems.append(
            Diagnostic(code="E-SHAPE", message=message, span=span, label=label, help=help, notes=notes)
        )

    def _type(self, argument: Argument) -> TensorType:
        """Return the type of an argument that is a value."""
        operand = argument.operand
        return self.types.get(operand.name, UNKNOWN) if isinstance(operand, Ref) else TensorType((), None)

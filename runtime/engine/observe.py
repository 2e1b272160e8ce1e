"""Observed traits, for any framework: which forwards a dry run needs, and what its results say of user classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, Literal, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from compiler import NO_TERMS, Observations, Observed, OwnTerms, Plan, compile_step
from compiler.facts.models import find_root
from compiler.ir.instructions import Emit, Evaluate, Forward, Instruction, Random, Schedule
from compiler.ir.program import Function, ModelDecl, ModeProgram, Program
from compiler.ir.value import Dimension
from compiler.types.dimension import TensorType
from graphspec.declare.graph import GraphSpec
from graphspec.declare.models import Traits
from graphspec.declare.ops import ForwardOp
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.codegen.resources import find_instructions, find_uses
from runtime.engine.backend import Signature
from runtime.engine.batch_sizes import Batches
from runtime.engine.errors import Framework
from runtime.engine.load import Loaded, find_span
from runtime.engine.recomputed import find_redrawing
from runtime.engine.setting import Setting, make_models
from runtime.engine.weights import find_late, find_rounds, load_late
from runtime.problems import refuse


def find_forwards(program: Program, known: frozenset[str], asked: frozenset[str] = frozenset()) -> Program:
    """Return the program of the forwards alone, with the pure ops between them, as far as the models are known.

    Its functions return every result, so that types can be read off; nothing in it writes a weight. ``asked``: users'
    losses for which it also finds out whether they return (sum, count).
    """
    modes = tuple(
        replace(mode, gates=(), functions=tuple(_find_forwards(each, program, known, asked) for each in mode.functions))
        for mode in program.modes
    )
    models = tuple(model for model in program.models if model.name in known)
    return replace(program, models=models, optimizers=(), modes=modes)


def _find_forwards(function: Function, program: Program, known: frozenset[str], asked: frozenset[str]) -> Function:
    """Return a function's forwards, pure ops and draws whose inputs are all known."""
    defined = {entry.name for entry in (*program.inputs, *program.states)}
    kept: list[Instruction] = []
    for instruction in function.instructions:
        is_known = isinstance(instruction, (Evaluate, Random, Schedule)) or (
            isinstance(instruction, Forward) and instruction.model in known
        )
        if is_known and defined.issuperset(find_uses(instruction)):
            is_asked = isinstance(instruction, Evaluate) and instruction.op in asked and instruction.family == "loss"
            # A loss does not check its shapes: they are observed, and the compiler reports misfits. A part of an
            # expression has a line of its own, because its type is observed as well.
            kept.append(replace(instruction, open=False, into="") if isinstance(instruction, Evaluate) else instruction)
            if is_asked:  # the probe that finds out whether a user's loss returns (sum, count)
                kept.append(replace(instruction, outputs=(asked_of(instruction.op),), counted="asked"))
            defined.update(instruction.defines)
    values = tuple(value for each in kept for value in each.defines)
    return replace(function, gated=(), instructions=(*kept, Emit(op="", values=values)))


def asked_of(loss: str) -> str:
    """Return the value that has as many elements as a user's loss returns pieces."""
    return f"{loss}.pieces"


def find_assumed(program: Program) -> frozenset[str]:
    """Return the users' losses of which it is assumed that they return (sum, count)."""
    every = find_instructions(program)
    return frozenset(each.op for each in every if isinstance(each, Evaluate) and each.counted == "assumed")


def find_known(program: Program) -> frozenset[str]:
    """Return the models whose structure is known: all but layers whose input sizes are not known yet."""
    return frozenset(model.name for model in program.models if model.kind != "layers" or model.layers)


def evaluating(program: Program) -> Program:
    """Return a program with every forward in evaluation: no statistics are written, nothing is dropped."""
    modes: list[ModeProgram] = []
    for mode in program.modes:
        functions: list[Function] = []
        for function in mode.functions:
            instructions = (
                replace(each, train=False, draws=False) if isinstance(each, Forward) else each
                for each in function.instructions
            )
            functions.append(replace(function, instructions=tuple(instructions)))
        modes.append(replace(mode, functions=tuple(functions)))
    return replace(program, modes=tuple(modes))


def find_dimension(one: int, other: int, small: int, large: int, batch: str) -> Dimension:
    """Return a fixed size, or one that grows with the batch: ``batch``, ``4*batch``, ``2*batch-1``.

    ``one`` was seen at the batch size ``small``, ``other`` at ``large``.
    """
    factor, rest = divmod(other - one, large - small)
    if factor == 0 and rest == 0:
        return one
    offset = one - factor * small
    product = batch if factor == 1 else f"{factor}*{batch}"
    return f"{product}{offset:+d}" if offset else product


def find_types(seen: Mapping[int, Mapping[str, Signature]], batch: str) -> dict[str, TensorType]:
    """Return the types of values seen at two batch sizes; a size that grows with the batch is given in terms of it."""
    (small, first), (large, second) = sorted(seen.items())
    types: dict[str, TensorType] = {}
    for name, (sizes, dtype) in first.items():
        others, _ = second.get(name, ((), ""))
        if name in second and len(sizes) == len(others):
            pairs = zip(sizes, others, strict=True)
            types[name] = TensorType(tuple(find_dimension(*pair, small, large, batch) for pair in pairs), dtype)
    return types


Trait = Literal["buffers", "rng", "batch_coupled", "recomputes"]
TRAITS: tuple[Trait, ...] = ("buffers", "rng", "batch_coupled", "recomputes")
WORDS: Mapping[Trait, str] = {
    "buffers": "buffers",
    "rng": "random draws",
    "batch_coupled": "coupled samples",
    "recomputes": "recomputed forwards",
}
D = TypeVar("D")
T = TypeVar("T")
M = TypeVar("M")


class RunObservation(Struct, frozen=True, kw_only=True):
    """The observations of a run: types of values, and which models (``net``, or ``net.method``) ran and drew numbers.

    ``recomputing``: models that run again in part when a gradient is taken; ``redrawing``: those among them that draw
    other numbers then.
    """

    types: Mapping[str, TensorType]
    ran: frozenset[str]
    drawing: frozenset[str]
    recomputing: frozenset[str] = frozenset()
    redrawing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class Observer(ABC, Generic[D, T, M]):
    """How a framework makes the models of a plan, and observes them."""

    setting: Setting[D, T, M]
    framework: Framework

    def make(self, plan: Plan, known: frozenset[str], given: Mapping[str, M]) -> Mapping[str, M]:
        """Return the known models, each with all its variables; those in ``given`` are made already.

        Copies of a model are made once it has its variables.
        """
        for names in find_rounds(plan.program.models, known):
            program = find_forwards(plan.program, names)
            late = find_late(program, given)
            made = make_models(self.load(program, given), plan.spec, self.framework, self.setting, given, late)
            given = cast("Mapping[str, M]", made)
            refuse(_find_absent_layers(given, plan.spec, self), plan.spec)
            self.complete(plan, program, given)
            load_late(self.load_weights, given, self.setting.weights, late, plan.spec)
        return given

    @abstractmethod
    def load(self, program: Program, given: Mapping[str, M]) -> Loaded[object]:
        """Return the executed module that makes the models of a program but those in ``given``."""

    @abstractmethod
    def complete(self, plan: Plan, program: Program, models: Mapping[str, M]) -> None:
        """Let models make all their variables; raise SpecError or StepError for models that no step can train."""

    @abstractmethod
    def load_weights(self, model: M, name: str, path: str) -> None:
        """Read the weights of a model from a file."""

    def observe(self, plan: Plan, program: Program, models: Mapping[str, M]) -> RunObservation:
        """Run a program of forwards alone; raise StepError where it fails. It changes nothing."""
        return Batches.of(plan).attempt(lambda batch: self.observe_batch(plan, program, models, batch))

    @abstractmethod
    def observe_batch(self, plan: Plan, program: Program, models: Mapping[str, M], batch: int) -> RunObservation:
        """Run a program of forwards alone, at one batch size and its neighbour."""

    @abstractmethod
    def has_buffers(self, model: M) -> bool:
        """Return whether a model has variables that no gradient trains."""

    @abstractmethod
    def is_coupled(self, model: M) -> bool:
        """Return whether a model normalizes over the batch in training."""

    @abstractmethod
    def has_layer(self, model: M, path: str) -> bool:
        """Return whether a model has an inner layer at a path: names or numbers of parts with dots between them."""

    def find_terms(self, model: M) -> OwnTerms:
        """Return the penalties and constraints that a model brings along; only layers of Keras do."""
        return NO_TERMS


def _find_absent_layers(models: Mapping[str, M], spec: GraphSpec, observer: Observer[D, T, M]) -> Iterator[Diagnostic]:
    """Yield GS115 for every tap of an inner layer that a model does not have."""
    forwards = {name: op for name, op in spec.ops.items() if isinstance(op, ForwardOp) and op.forward in models}
    for name, op in forwards.items():
        for index, output in enumerate(op.outputs or ()):
            if output.tap is not None and not observer.has_layer(models[op.forward], output.tap):
                message = f"model '{op.forward}' has no layer '{output.tap}'"
                help = "name a part as its class does, and one inside of another after a dot: `tap: body.0`"
                span = spec.span("ops", name, "outputs", index)
                yield Diagnostic(code="GS115", message=message, span=span, help=help)


class Learned(Struct, Generic[M], frozen=True, kw_only=True):
    """The plan compiled with the observations, the models made on the way, and notes for the user.

    ``seen`` are the traits that were observed; ``traits`` also has those that are declared, or assumed because they
    could not be observed.
    """

    plan: Plan
    models: Mapping[str, M]
    traits: Mapping[str, Observed] = {}
    seen: Mapping[str, Observed] = {}
    notes: tuple[str, ...] = ()
    observed: Observations | None = None


def learn(plan: Plan, given: Mapping[str, M], observer: Observer[D, T, M]) -> Learned[M]:
    """Observe user classes, and the layers after them in as many rounds as it takes; with none of them, keep the plan.

    Raises SpecError: GS206 for a declared trait that is not true, StepError for a forward that fails.
    """
    learned = Learned(plan=plan, models=given)
    known: frozenset[str] = frozenset()
    while True:
        program = learned.plan.program
        unknown = [model for model in program.models if model.kind == "class" or _is_unresolved(model)]
        if not (unknown or find_assumed(program)) or find_known(program) == known:
            break
        known = find_known(learned.plan.program)
        learned = _observe(learned, known, observer)
    unresolved = [
        Diagnostic(
            code="GS214",
            message=f"the sizes of model '{model.name}' could not be inferred",
            span=find_span(plan.spec, model.name),
            help="declare the shapes of all inputs, with `batch` as the only free size",
        )
        for model in learned.plan.program.models
        if _is_unresolved(model)
    ]
    if unresolved:
        raise SpecError(unresolved, plan.spec.texts())
    return replace(learned, notes=(*_describe(plan, learned), *learned.notes))


def _is_unresolved(model: ModelDecl) -> bool:
    """Return whether the sizes of a model's layers are not known."""
    return model.kind == "layers" and not model.layers


def _observe(learned: Learned[M], known: frozenset[str], observer: Observer[D, T, M]) -> Learned[M]:
    """Run the forwards of the known models, and compile again with the observations."""
    plan, spec = learned.plan, learned.plan.spec
    if spec.micro_batches > 1 or spec.is_replicated:  # values have the names of the spec where the batch is whole
        whole = spec.model_copy(update={"micro_batches": 1, "parallel": None})
        plan = compile_step(whole, plan.program.backend, plan.program.order, learned.observed, pace=plan.pace)
    models = observer.make(plan, known, learned.models)
    observation = observer.observe(plan, find_forwards(plan.program, known, find_assumed(learned.plan.program)), models)
    # The known models that are declared by a class, each with all models that are like it, its own among them.
    kin = {
        name: frozenset(each for each in models if each in spec.models and find_root(spec, each) == name)
        for name, model in spec.models.items()
        if model.class_ is not None and name in known
    }
    seen = {
        name: Observed(
            buffers=observer.has_buffers(models[name]),
            rng=not alike.isdisjoint(observation.drawing),
            batch_coupled=observer.is_coupled(models[name]),
            recomputes=not alike.isdisjoint(observation.recomputing),
        )
        for name, alike in kin.items()
    }
    traits = {name: _complete(plan, name, kin[name], observation, each) for name, each in seen.items()}
    false = [
        Diagnostic(
            code="GS206",
            message=f"model '{name}' declares `{trait}: false`, but it has {WORDS[trait]}",
            span=spec.span("models", name, "traits", trait),
            help=f"write `{trait}: true`, or leave it out: build observes it",
        )
        for name, each in traits.items()
        for trait in TRAITS
        if _declares(plan, name, trait) is False and _has(each, trait)
    ]
    if false:
        raise SpecError(false, plan.spec.texts())
    asked = {name: observation.types.get(asked_of(name)) for name in find_assumed(learned.plan.program)}
    counts = {name: found.shape == (2,) for name, found in asked.items() if found is not None}
    counts.update({} if learned.observed is None else learned.observed.counts)
    terms = {name: found for name in models if (found := observer.find_terms(models[name])) != NO_TERMS}
    observed = Observations(models=traits, outputs=dict(observation.types), counts=counts, terms=terms)
    again = compile_step(
        spec, learned.plan.program.backend, learned.plan.program.order, observed, pace=learned.plan.pace
    )
    redrawing = tuple(find_redrawing(observation.redrawing, again))
    if redrawing:
        raise SpecError(redrawing, plan.spec.texts())
    return Learned(plan=again, models=models, traits=traits, seen=seen, notes=observation.notes, observed=observed)


def _complete(plan: Plan, name: str, kin: frozenset[str], observation: RunObservation, seen: Observed) -> Observed:
    """Return the traits a class is compiled with: seen, declared, and draws that could not be observed."""
    declared = plan.spec.models[name].traits or Traits()
    calls = [each for each in find_instructions(plan.program) if isinstance(each, Forward) and each.model in kin]
    called = {each.model if each.method is None else f"{each.model}.{each.method}" for each in calls}
    unwatched = not observation.ran.issuperset(called)
    return Observed(
        buffers=seen.buffers or declared.buffers is True,
        rng=seen.rng or declared.rng is True or (unwatched and declared.rng is None),
        batch_coupled=seen.batch_coupled or declared.batch_coupled is True,
        recomputes=seen.recomputes or declared.recomputes is True,
    )


def _has(observed: Observed, trait: Trait) -> bool:
    """Return whether a trait was seen."""
    return bool(getattr(observed, trait))


def _declares(plan: Plan, name: str, trait: Trait) -> bool | None:
    """Return what a model declares of a trait; None where it declares nothing."""
    return getattr(plan.spec.models[name].traits or Traits(), trait)


def _describe(before: Plan, learned: Learned[M]) -> Iterator[str]:
    """Yield a sentence per class and per loss about what was seen, and whether that changed the plan."""
    for name in learned.traits:
        found: list[str] = []
        for trait in TRAITS:
            word = WORDS[trait]
            if _has(learned.seen[name], trait):
                found.append(word)
            elif _has(learned.traits[name], trait):
                found.append(f"{word} ({'declared' if _declares(learned.plan, name, trait) else 'assumed'})")
            else:
                found.append(f"no {word}")
        yield f"observed of '{name}': {', '.join(found)}"
    observed = learned.observed or Observations()
    for model in (each for each in learned.plan.program.models if each.trained and each.name in observed.terms):
        terms = observed.terms[model.name]
        shown = ", ".join(
            f"{each.model_dump(exclude_none=True, exclude={'match'})} on {each.match}"
            for each in (*terms.regularizers, *terms.constraints)
        )
        yield f"'{model.name}' has its own penalties and constraints, which act in its updates: {shown}"
    counts = observed.counts
    for name, is_counted in counts.items():
        yield f"observed of '{name}': it returns {'(sum, count)' if is_counted else 'one number, whose rows count'}"
    if learned.traits or counts:
        same = before.program.modes == learned.plan.program.modes
        yield "the plan stays as it was" if same else "the plan was compiled again with what was observed, and changed"

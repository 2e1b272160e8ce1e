"""Learning: user classes are run once without training, and the plan is compiled again with what was seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from compiler import Observations, Observed, Plan, compile_step
from compiler.facts import find_root
from compiler.program import Forward, ModelDecl, Program
from graphspec.diagnostics import Diagnostic, SpecError
from graphspec.models import Traits
from runtime.backends.torch.dryrun import BATCH, Findings, Trial, run_dry
from runtime.backends.torch.emission.module import emit_module
from runtime.backends.torch.execution import call_checked, find_span, load_module
from runtime.backends.torch.observation import Watch, find_forwards, find_known, find_types, observe
from runtime.backends.torch.setting import Setting
from runtime.backends.torch.sizing import give_sizes
from runtime.backends.torch.tensors import sample_inputs
from runtime.effects import find_functions
from runtime.step import StepError

TRAITS = ("buffers", "rng", "batch_coupled")
WORDS = {"buffers": "buffers", "rng": "random draws", "batch_coupled": "coupled samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The plan compiled with what was seen, the models made on the way, and what there is to tell.

    ``seen`` are the traits that were really seen; ``traits`` has also those that are declared, or assumed for want of a
    look.
    """

    plan: Plan
    models: Mapping[str, nn.Module]
    traits: Mapping[str, Observed] = field(default_factory=dict[str, Observed])
    seen: Mapping[str, Observed] = field(default_factory=dict[str, Observed])
    notes: tuple[str, ...] = ()


def learn(plan: Plan, setting: Setting) -> Learned:
    """Observe user classes, and layers behind them in as many rounds as it takes; nothing to see: the plan as it is.

    Raises SpecError: GS206 for a declared trait that is not true, StepError for a forward that fails.
    """
    learned = Learned(plan=plan, models=setting.given)
    known: frozenset[str] = frozenset()
    while _has_unknowns(learned.plan.program) and find_known(learned.plan.program) != known:
        known = find_known(learned.plan.program)
        learned = _look(learned, known, setting)
    unresolved = tuple(_find_unresolved(learned.plan))
    if unresolved:
        raise SpecError(unresolved, plan.spec.texts())
    return replace(learned, notes=tuple(_tell(plan, learned)))


def _has_unknowns(program: Program) -> bool:
    """Return whether a program names a class, or layers whose sizes are not known."""
    return any(model.kind == "class" or _is_unresolved(model) for model in program.models)


def _is_unresolved(model: ModelDecl) -> bool:
    """Return whether the sizes of a model's layers are not known."""
    return model.kind == "layers" and not model.layers


def _look(learned: Learned, known: frozenset[str], setting: Setting) -> Learned:
    """Run the forwards of the known models, and compile again with what was seen."""
    plan = learned.plan
    program = find_forwards(plan.program, known)
    models = _make(plan, known, learned.models, setting)
    watch = Watch()
    seen: dict[int, Findings] = {}
    for size in (BATCH, BATCH + 1):
        seen[size] = _run(program, plan, models, setting, watch, size)
        if seen[size].problems:
            raise StepError(seen[size].problems, plan.spec.texts())
    found = {name: observe(models[name], _find_kin(plan, name, models), watch) for name in _find_classes(plan, known)}
    traits = {name: _complete(plan, name, models, watch, each) for name, each in found.items()}
    false = [problem for name, each in traits.items() for problem in _find_false_traits(plan, name, each)]
    if false:
        raise SpecError(false, plan.spec.texts())
    outputs = find_types({size: _merge(each) for size, each in seen.items()}, "batch")
    again = _compile_again(plan, Observations(models=traits, outputs=outputs))
    return Learned(plan=again, models=models, traits=traits, seen=found)


def _make(
    plan: Plan, known: frozenset[str], given: Mapping[str, nn.Module], setting: Setting
) -> Mapping[str, nn.Module]:
    """Return the known models; lazy layers are given their sizes before likenesses are copied from them."""
    originals = frozenset(model.name for model in plan.program.models if model.like is None)
    for names in (known & originals, known):
        program = find_forwards(plan.program, names)
        loaded = load_module(emit_module(program, provided=given), program)
        given = call_checked(loaded, plan.spec, "make_models", setting.seed, setting.device, setting.dtype, given)
        give_sizes(given, program, plan.spec, setting)
    return given


def _run(
    program: Program, plan: Plan, models: Mapping[str, nn.Module], setting: Setting, watch: Watch, size: int
) -> Findings:
    """Run the forwards of a program at one batch size; nothing where the inputs have other free sizes."""
    inputs = sample_inputs(program, {"batch": size}, setting.device, setting.dtype)
    if inputs is None:
        return Findings()
    loaded = load_module(emit_module(program, provided=models), program)
    trial = Trial.of(loaded, plan.spec, models, setting)
    return run_dry(replace(trial, inputs=inputs, around=watch.over))


def _merge(findings: Findings) -> dict[str, object]:
    """Return all results of a run by name; the first function that has one counts."""
    merged: dict[str, object] = {}
    for outputs in findings.outputs.values():
        for name, value in outputs.items():
            merged.setdefault(name, value)
    return merged


def _find_classes(plan: Plan, known: frozenset[str]) -> tuple[str, ...]:
    """Return the known models that are declared by a class."""
    return tuple(name for name, model in plan.spec.models.items() if model.class_ is not None and name in known)


def _find_kin(plan: Plan, name: str, models: Mapping[str, nn.Module]) -> frozenset[str]:
    """Return the names of all models that are like a class, its own among them."""
    return frozenset(each for each in models if each in plan.spec.models and find_root(plan.spec, each) == name)


def _complete(plan: Plan, name: str, models: Mapping[str, nn.Module], watch: Watch, seen: Observed) -> Observed:
    """Return the traits a class is compiled with: seen, declared, and draws that nobody could watch."""
    declared = plan.spec.models[name].traits or Traits()
    unwatched = not watch.ran.issuperset(_find_called(plan.program, _find_kin(plan, name, models)))
    return Observed(
        buffers=seen.buffers or declared.buffers is True,
        rng=seen.rng or declared.rng is True or (unwatched and declared.rng is None),
        batch_coupled=seen.batch_coupled or declared.batch_coupled is True,
    )


def _find_called(program: Program, models: frozenset[str]) -> frozenset[str]:
    """Return those of some models that a program calls; calls of a method count as calls nobody can watch."""
    instructions = (each for function in find_functions(program) for each in function.instructions)
    calls = [each for each in instructions if isinstance(each, Forward)]
    return frozenset(
        each.model if each.method is None else f"{each.model}.{each.method}" for each in calls if each.model in models
    )


def _find_false_traits(plan: Plan, name: str, seen: Observed) -> Iterator[Diagnostic]:
    """Yield a problem for every trait declared false that was seen to be true."""
    declared = plan.spec.models[name].traits or Traits()
    for trait in TRAITS:
        if getattr(declared, trait) is False and getattr(seen, trait):
            yield Diagnostic(
                code="GS206",
                message=f"model '{name}' declares `{trait}: false`, but it has {WORDS[trait]}",
                span=plan.spec.span("models", name, "traits", trait),
                help=f"write `{trait}: true`, or leave it out: build finds out",
            )


def _compile_again(plan: Plan, observed: Observations) -> Plan:
    """Return the plan compiled with what was seen, under the same policy."""
    return compile_step(plan.spec, plan.program.backend, plan.program.order, observed, pace=plan.pace)


def _tell(before: Plan, learned: Learned) -> Iterator[str]:
    """Yield a sentence per class about what it has, and whether that changed the plan."""
    for name in learned.traits:
        yield f"observed of '{name}': {', '.join(_tell_trait(learned, name, trait) for trait in TRAITS)}"
    if learned.traits:
        same = before.program.modes == learned.plan.program.modes
        yield "the plan stays as it was" if same else "the plan was compiled again with what was observed, and changed"


def _tell_trait(learned: Learned, name: str, trait: str) -> str:
    """Return what was found of one trait, and how it is known where it was not seen."""
    word = WORDS[trait]
    if getattr(learned.seen[name], trait):
        return word
    if not getattr(learned.traits[name], trait):
        return f"no {word}"
    declared = learned.plan.spec.models[name].traits or Traits()
    return f"{word} ({'declared' if getattr(declared, trait) else 'assumed'})"


def _find_unresolved(plan: Plan) -> Iterator[Diagnostic]:
    """Yield a problem for every model of layers whose sizes no run could find out."""
    for model in plan.program.models:
        if _is_unresolved(model):
            yield Diagnostic(
                code="GS214",
                message=f"the sizes of model '{model.name}' could not be found out",
                span=find_span(plan.spec, model.name),
                help="declare the shapes of all inputs, with `batch` as the only free size",
            )

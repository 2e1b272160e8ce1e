"""From a plan to a step that runs: import, make, observe, compile again, build, trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import tensorflow as tf

from compiler import Plan
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError
from runtime.backends.tensorflow.codegen.dialect import TENSORFLOW
from runtime.backends.tensorflow.compat import is_supported
from runtime.backends.tensorflow.devices import Setting, choose_device
from runtime.backends.tensorflow.dryrun import run_dry
from runtime.backends.tensorflow.engine import TensorFlowEngine
from runtime.backends.tensorflow.execution import Loaded, call_checked, load_module
from runtime.backends.tensorflow.models import (
    check_given,
    find_other_types,
    find_reducers,
    find_undeclared_ties,
    refuse_scope,
)
from runtime.backends.tensorflow.observe_traits import Learned, learn
from runtime.backends.tensorflow.precision import describe_others
from runtime.backends.tensorflow.slots import parameters
from runtime.backends.tensorflow.tensors import DTYPES
from runtime.backends.tensorflow.terms import find_unknown_terms
from runtime.codegen.module import Emitted, emit_module
from runtime.codegen.resources import Extras
from runtime.engine.backend import BuildRequest, Built
from runtime.engine.replicas import refuse_reducers
from runtime.engine.user_models import check_parameters, import_users
from runtime.engine.weights import find_files, place_files
from runtime.problems import problem
from runtime.step import StepError

TRACED = "checked while the graphs were traced, for batches of any size"


def build_plan(plan: Plan, request: BuildRequest) -> Built:
    """Return the built plan; raise SpecError with everything that was found before the first step."""
    if not is_supported():
        message = f"TensorFlow {tf.__version__} is too old"
        raise problem("GS217", message, help="pip install 'stepgraph[tensorflow]'")
    setting = _choose_setting(plan, request)
    learned = learn(plan, setting)
    loaded = _load(learned, setting)
    spec = learned.plan.spec
    problems = run_dry(loaded, spec, setting.seed)
    if problems:
        raise StepError(problems, spec.texts())
    loaded = _instrument(loaded, spec, setting) if request.debug else loaded
    engine = TensorFlowEngine.over(loaded, spec, setting)
    others = describe_others(loaded.names["MODELS"], loaded.program, setting.dtype)
    return Built(
        plan=learned.plan,
        source=loaded.emitted.text,
        models=loaded.names["MODELS"],
        optimizers=engine.module.access(),
        device=setting.device,
        notes=(
            *setting.weights.notes,
            *learned.notes,
            TRACED,
            *_describe_ignored(request),
            *others,
            *engine.module.notes(),
        ),
        engine=engine,
    )


def _choose_setting(plan: Plan, request: BuildRequest) -> Setting:
    """Return where and how to build; raise SpecError for models, imports and files that cannot be used."""
    refuse_scope()
    device = choose_device(request.device)
    given = check_given(request.models, plan.program, plan.spec)
    refuse_reducers({name: find_reducers(model) for name, model in given.items()}, plan.spec)
    _refuse(find_unknown_terms(given, plan.program, plan.spec), plan.spec)
    import_users(plan.program, plan.spec, request)
    return Setting(
        device=device,
        dtype=DTYPES[request.dtype],
        seed=request.seed,
        given=given,
        weights=find_files(plan.program, plan.spec, request),
        extras=Extras(norms=request.norms, profile=request.profile),
        jit_compile=request.jit_compile,
    )


def _describe_ignored(request: BuildRequest) -> Iterable[str]:
    """Yield notes on options without effect."""
    if request.debug and request.jit_compile:
        yield "XLA compiles nothing: a step that is built for debugging runs as Python"


def _load(learned: Learned, setting: Setting) -> Loaded:
    """Return the executed and built module; raise SpecError where its models differ from the spec."""
    program, spec = learned.plan.program, learned.plan.spec
    loaded = load_module(_emit(program, setting), program)
    place_files(loaded, setting.weights)
    given = learned.models
    models = call_checked(loaded, spec, "make_models", setting.seed, setting.device, setting.dtype, given)
    _refuse(find_undeclared_ties(models, program, spec), spec)
    _refuse(check_parameters({name: parameters(model) for name, model in models.items()}, program, spec), spec)
    _refuse(find_other_types(models, setting.dtype, spec), spec)
    _call_build(loaded, spec, setting, models)
    return loaded


def _emit(program: Program, setting: Setting, *, debug: bool = False) -> Emitted:
    """Return the source of the step."""
    return emit_module(program, TENSORFLOW, setting.given, replace(setting.extras, debug=debug))


def _instrument(loaded: Loaded, spec: GraphSpec, setting: Setting) -> Loaded:
    """Return the built module of a debug build, with the existing models."""
    text = _emit(loaded.program, setting, debug=True)
    debugged = load_module(text, loaded.program)
    _call_build(debugged, spec, setting, loaded.names["MODELS"])
    return debugged


def _call_build(loaded: Loaded, spec: GraphSpec, setting: Setting, models: object) -> None:
    """Call the module's ``build`` with the models that were made."""
    place = setting.seed, setting.device, setting.dtype
    call_checked(loaded, spec, "build", *place, models, setting.jit_compile)


def _refuse(problems: Iterable[Diagnostic], spec: GraphSpec) -> None:
    """Raise SpecError with some problems, where there are any."""
    found = tuple(problems)
    if found:
        raise SpecError(found, spec.texts())

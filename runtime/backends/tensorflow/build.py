"""From a plan to a step that runs: import, make, observe, compile again, build, trace."""

from __future__ import annotations

import tensorflow as tf
from msgspec.structs import replace

from compiler import Plan
from compiler.facts.parameters import check_matrices
from runtime.backends.tensorflow.compat import is_supported
from runtime.backends.tensorflow.devices import Setting, choose_device, choose_strategy
from runtime.backends.tensorflow.dryrun import run_dry
from runtime.backends.tensorflow.engine import TensorFlowEngine
from runtime.backends.tensorflow.execution import ERRORS, load_program
from runtime.backends.tensorflow.keras_terms import find_unknown_terms
from runtime.backends.tensorflow.models import (
    check_given,
    describe_others,
    find_other_types,
    find_reducers,
    find_scope,
    find_undeclared_ties,
)
from runtime.backends.tensorflow.observe_traits import TensorFlowObserver
from runtime.backends.tensorflow.slots import parameters
from runtime.backends.tensorflow.tensors import DTYPES
from runtime.engine.backend import BuildRequest, Built
from runtime.engine.errors import call_checked
from runtime.engine.observe import learn
from runtime.engine.replicas import refuse_reducers
from runtime.engine.setting import make_models
from runtime.engine.stalls import find_stalls
from runtime.engine.user_models import check_parameters
from runtime.problems import problem, refuse
from runtime.step import StepError

TRACED = "checked while the graphs were traced, for batches of any size"


def build_plan(plan: Plan, request: BuildRequest) -> Built:
    """Return the built plan; raise SpecError with everything that was found before the first step."""
    if not is_supported():
        message = f"TensorFlow {tf.__version__} is too old"
        raise problem("GS217", message, help="pip install 'stepgraph[tensorflow]'")
    strategy = find_scope(plan.spec)
    if strategy is None and plan.spec.is_replicated:
        strategy = choose_strategy(request.device, is_alone=request.debug)
        if strategy is not None:
            with strategy.scope():
                return _build(plan, request, strategy)
    return _build(plan, request, strategy)


def _build(plan: Plan, request: BuildRequest, strategy: tf.distribute.Strategy | None) -> Built:
    """Return the built plan, whose variables are those of a strategy, if there is one, in whose scope this is."""
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    if request.debug and replicas > 1:
        message = f"a step that is built for debugging runs on one device, and the strategy has {replicas} replicas"
        raise problem("GS257", message, help="build it outside of `strategy.scope()`: it takes the same steps")
    if request.jit_compile and replicas > 1:
        help = "leave out `jit_compile` (`--xla`), or choose one device, such as `gpu:0`"
        raise problem("GS268", f"XLA does not compile a step that {replicas} replicas take", help=help)
    device, dtype = choose_device(request.device), DTYPES[request.dtype]
    given = check_given(request.models, plan.program, plan.spec)
    refuse_reducers({name: find_reducers(model, strategy) for name, model in given.items()}, plan.spec)
    refuse(find_unknown_terms(given, plan.program, plan.spec), plan.spec)
    setting = Setting.of(plan, request, device=device, dtype=dtype, given=given)
    learned = learn(plan, given, TensorFlowObserver(setting=setting))
    program, spec = learned.plan.program, learned.plan.spec
    if request.jit_compile and program.has_rows(each for one in program.optimizers for each in one.models):
        message = "XLA compiles tensors of fixed sizes, and the gradient of an embedding is rows (`sparse: true`)"
        raise problem("GS268", message, help="leave out `jit_compile` (`--xla`), or `sparse: true`")
    refuse(find_stalls(program, spec, request.dtype), spec)
    loaded = load_program(program, given, setting.extras)
    models = make_models(loaded, spec, ERRORS, setting, learned.models)
    refuse(find_undeclared_ties(models, program, spec), spec)
    named = {name: parameters(model) for name, model in models.items()}
    refuse(check_parameters(named, program, spec), spec)
    shapes = {name: {key: tuple(each.shape) for key, each in found.items()} for name, found in named.items()}
    refuse(check_matrices(spec, shapes), spec)
    refuse(find_other_types(models, dtype, spec), spec)
    call_checked(loaded, spec, ERRORS, "build", *setting.place, models, setting.jit_compile)
    problems = run_dry(loaded, spec, setting.seed)
    if problems:
        raise StepError(problems, spec.texts())
    if request.debug:
        models = loaded.names["MODELS"]
        loaded = load_program(program, given, replace(setting.extras, debug=True))
        call_checked(loaded, spec, ERRORS, "build", *setting.place, models, setting.jit_compile)
    ignored = ("XLA compiles nothing: a step that is built for debugging runs as Python",)
    engine = TensorFlowEngine.over(loaded, spec, setting)
    return Built(
        plan=learned.plan,
        source=loaded.emitted.text,
        models=loaded.names["MODELS"],
        optimizers=engine.access(),
        device=setting.device,
        notes=(
            *setting.weights.notes,
            *learned.notes,
            TRACED,
            *(ignored if request.debug and request.jit_compile else ()),
            *describe_others(loaded.names["MODELS"], program, dtype),
            *engine.notes(),
        ),
        engine=engine,
    )

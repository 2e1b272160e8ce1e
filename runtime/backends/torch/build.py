"""From a plan to a step that runs: import, make, observe, compile again, check, build."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import torch
from msgspec.structs import replace

from compiler import Plan
from compiler.facts.parameters import check_matrices
from runtime.backends.torch.capture import UNCAPTURED, capture
from runtime.backends.torch.compat import is_supported
from runtime.backends.torch.devices import Setting, choose_device
from runtime.backends.torch.dryrun import Trial, run_dry
from runtime.backends.torch.engine import Check, TorchEngine
from runtime.backends.torch.execution import ERRORS, load_program
from runtime.backends.torch.models import check_given, find_other_types, find_reducers, find_undeclared_ties
from runtime.backends.torch.observe_traits import TorchObserver, Watch
from runtime.backends.torch.tensors import DTYPES, sample_inputs
from runtime.codegen.resources import count_parts
from runtime.engine.backend import BuildRequest, Built
from runtime.engine.batch_sizes import Batches
from runtime.engine.errors import call_checked
from runtime.engine.observe import learn
from runtime.engine.recomputed import find_unexpected
from runtime.engine.replicas import refuse_reducers
from runtime.engine.setting import make_models
from runtime.engine.stalls import find_stalls
from runtime.engine.user_models import check_parameters
from runtime.problems import problem, refuse
from runtime.step import StepError


@torch.inference_mode(False)
@torch.enable_grad()  # a caller's no_grad must not affect the step
def build_plan(plan: Plan, request: BuildRequest) -> Built:
    """Return the built plan; raise SpecError with everything that was found before the first step."""
    if not is_supported():
        raise problem("GS217", f"PyTorch {torch.__version__} is too old", help="pip install 'stepgraph[torch]'")
    device, dtype = choose_device(request.device), DTYPES[request.dtype]
    given = check_given(request.models, plan.program, plan.spec)
    refuse_reducers({name: find_reducers(model) for name, model in given.items()}, plan.spec)
    refuse(find_other_types(given, dtype, plan.spec), plan.spec)
    setting = Setting.of(plan, request, device=device, dtype=dtype, given=given)
    learned = learn(plan, given, TorchObserver(setting=setting))
    program, spec = learned.plan.program, learned.plan.spec
    refuse(find_stalls(program, spec, request.dtype), spec)
    loaded = load_program(program, given, setting.extras, captured=request.jit is not None)
    models = make_models(loaded, spec, ERRORS, setting, learned.models)
    refuse(find_undeclared_ties(models, program, spec), spec)
    named = {name: dict(model.named_parameters()) for name, model in models.items()}
    refuse(check_parameters(named, program, spec), spec)
    shapes = {name: {key: tuple(each.shape) for key, each in found.items()} for name, found in named.items()}
    refuse(check_matrices(spec, shapes), spec)
    late, checked, sample = _check(Trial.of(loaded, spec, models, setting), Batches.of(learned.plan))
    if request.debug:  # only now: the dry run does without its checks, which read numbers
        loaded = load_program(program, given, replace(setting.extras, debug=True))
    call_checked(loaded, spec, ERRORS, "build", *setting.place, models)
    found = UNCAPTURED
    if request.jit is not None:
        found = capture(loaded, spec, sample, request.report, device, dynamic=request.jit == "dynamic")
    engine = TorchEngine.over(loaded, spec, setting, late, found.graphs)
    for each in found.graphs.values():
        weakref.finalize(engine, each.forget).atexit = False
    return Built(
        plan=learned.plan,
        source=loaded.emitted.text,
        models=loaded.names["MODELS"],
        optimizers=engine.access(),
        device=str(setting.device),
        notes=(*setting.weights.notes, *learned.notes, *checked, *engine.notes(), *found.notes),
        engine=engine,
    )


def _check(trial: Trial, batches: Batches) -> tuple[Check | None, tuple[str, ...], Mapping[str, torch.Tensor] | None]:
    """Make the dry run; return a later check where sizes are not known yet, notes, and the batch that was tried."""
    parts, setting = count_parts(trial.program), trial.setting
    tried: list[Mapping[str, torch.Tensor] | None] = []

    def run(size: int) -> tuple[str, ...] | None:
        """Make the dry run with batches of a size; None where the inputs have other free sizes."""
        inputs = sample_inputs(trial.program, {"batch": size * parts}, setting.device, setting.dtype)
        tried.append(inputs)
        return None if inputs is None else _examine(replace(trial, inputs=inputs), f"at batch {size}")

    notes = batches.attempt(run)
    if notes is not None:
        return None, notes, tried[-1]

    def check(batch: Mapping[str, torch.Tensor], mode: str, dataset: str | None) -> None:
        """Make the dry run with the sizes of a batch."""
        _examine(replace(trial, inputs=batch, modes=(mode,), dataset=dataset), "of the size of the first")

    return check, ("checked with the first batch: inputs have free sizes other than `batch`",), None


def _examine(trial: Trial, size: str) -> tuple[str, ...]:
    """Make a dry run, raise StepError with its findings, and return the kind of run it was."""
    watch = Watch()
    findings = run_dry(replace(trial, around=watch.over_checkpoints))
    problems = findings.problems or tuple(find_unexpected(watch.recomputing, trial.program, trial.spec))
    if problems:
        raise StepError(problems, trial.spec.texts())
    if findings.missing:
        return (f"not checked before the first step: {findings.missing}",)
    if findings.is_real:
        return (": ".join(filter(None, (f"checked by a real step on a copy {size}", findings.instead))),)
    return ("checked with fake tensors",)

"""From a plan to a step that runs: import, make, observe, compile again, check, build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from compiler import Plan
from compiler.ir.program import Program
from graphspec.diagnostics import SpecError
from runtime.backends.torch.codegen.dialect import TORCH
from runtime.backends.torch.compat import is_supported
from runtime.backends.torch.devices import Setting, choose_device
from runtime.backends.torch.dryrun import Trial, run_dry
from runtime.backends.torch.engine import Check, TorchEngine
from runtime.backends.torch.execution import Loaded, call_checked, load_module
from runtime.backends.torch.models import check_given, find_other_types, find_reducers, find_undeclared_ties
from runtime.backends.torch.observe_traits import Learned, Watch, learn
from runtime.backends.torch.tensors import DTYPES, sample_inputs
from runtime.codegen.module import Emitted, emit_module
from runtime.codegen.resources import Extras, count_parts
from runtime.engine.backend import BuildRequest, Built
from runtime.engine.batch_sizes import Batches
from runtime.engine.recomputed import find_unexpected
from runtime.engine.replicas import refuse_reducers
from runtime.engine.user_models import check_parameters, import_users
from runtime.engine.weights import find_files, place_files
from runtime.problems import problem
from runtime.step import StepError


@torch.inference_mode(False)
@torch.enable_grad()  # a caller's no_grad must not affect the step
def build_plan(plan: Plan, request: BuildRequest) -> Built:
    """Return the built plan; raise SpecError with everything that was found before the first step."""
    if not is_supported():
        raise problem("GS217", f"PyTorch {torch.__version__} is too old", help="pip install 'stepgraph[torch]'")
    setting = _choose_setting(plan, request)
    learned = learn(plan, setting)
    loaded, models = _load(learned, setting)
    late, checked = _check(Trial.of(loaded, learned.plan.spec, models, setting), Batches.of(learned.plan))
    loaded = _instrument(loaded, setting) if request.debug else loaded
    call_checked(loaded, learned.plan.spec, "build", setting.seed, setting.device, setting.dtype, models)
    engine = TorchEngine.over(loaded, learned.plan.spec, setting, late)
    return Built(
        plan=learned.plan,
        source=loaded.emitted.text,
        models=loaded.names["MODELS"],
        optimizers=engine.module.access(),
        device=str(setting.device),
        notes=(*setting.weights.notes, *learned.notes, *checked, *engine.module.notes()),
        engine=engine,
    )


def _choose_setting(plan: Plan, request: BuildRequest) -> Setting:
    """Return where and how to build; raise SpecError for models, imports and files that cannot be used."""
    device = choose_device(request.device)
    given = check_given(request.models, plan.program, plan.spec)
    refuse_reducers({name: find_reducers(model) for name, model in given.items()}, plan.spec)
    others = tuple(find_other_types(given, DTYPES[request.dtype], plan.spec))
    if others:
        raise SpecError(others, plan.spec.texts())
    import_users(plan.program, plan.spec, request)
    return Setting(
        device=device,
        dtype=DTYPES[request.dtype],
        seed=request.seed,
        given=given,
        weights=find_files(plan.program, plan.spec, request),
        extras=Extras(norms=request.norms, profile=request.profile),
    )


def _load(learned: Learned, setting: Setting) -> tuple[Loaded, Mapping[str, nn.Module]]:
    """Return the executed module and all its models; raise SpecError where two share undeclared memory."""
    program, spec = learned.plan.program, learned.plan.spec
    loaded = load_module(_emit(program, setting), program)
    place_files(loaded, setting.weights)
    given = learned.models
    models = call_checked(loaded, spec, "make_models", setting.seed, setting.device, setting.dtype, given)
    named = {name: dict(model.named_parameters()) for name, model in models.items()}
    problems = tuple(find_undeclared_ties(models, program, spec)) or tuple(check_parameters(named, program, spec))
    if problems:
        raise SpecError(problems, spec.texts())
    return loaded, models


def _emit(program: Program, setting: Setting, *, debug: bool = False) -> Emitted:
    """Return the source of the step."""
    return emit_module(program, TORCH, setting.given, replace(setting.extras, debug=debug))


def _instrument(loaded: Loaded, setting: Setting) -> Loaded:
    """Return the module of a debug build; the dry run does without its checks, which read numbers."""
    return load_module(_emit(loaded.program, setting, debug=True), loaded.program)


def _check(trial: Trial, batches: Batches) -> tuple[Check | None, tuple[str, ...]]:
    """Make the dry run; return a later check where sizes are not known yet, and notes."""
    parts, setting = count_parts(trial.program), trial.setting

    def run(size: int) -> tuple[str, ...] | None:
        """Make the dry run with batches of a size; None where the inputs have other free sizes."""
        inputs = sample_inputs(trial.program, {"batch": size * parts}, setting.device, setting.dtype)
        return None if inputs is None else _examine(replace(trial, inputs=inputs), f"at batch {size}")

    notes = batches.attempt(run)
    if notes is not None:
        return None, notes

    def check(batch: Mapping[str, torch.Tensor], mode: str, dataset: str | None) -> None:
        """Make the dry run with the sizes of a batch."""
        _examine(replace(trial, inputs=batch, modes=(mode,), dataset=dataset), "of the size of the first")

    return check, ("checked with the first batch: inputs have free sizes other than `batch`",)


def _examine(trial: Trial, size: str) -> tuple[str, ...]:
    """Make a dry run, raise StepError with its findings, and return the kind of run it was."""
    watch = Watch()
    findings = run_dry(replace(trial, around=watch.over_checkpoints))
    problems = findings.problems or tuple(find_unexpected(watch.recomputing, trial.program, trial.spec))
    if problems:
        raise StepError(problems, trial.spec.texts())
    if findings.missing:
        return (f"not checked before the first step: {findings.missing}",)
    if findings.real:
        return (f"checked by a real forward on a copy {size}: {findings.real}",)
    return ("checked with fake tensors",)

"""Declarations of a program: inputs, states, models and optimizers, with everything resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from compiler.facts.models import ModelFacts, find_used_models, find_used_states
from compiler.facts.optimizers import find_clock_rates, find_optimizers, find_ruled
from compiler.ir.cell import find_tied
from compiler.ir.diagnose import place_in
from compiler.ir.digraph import sort
from compiler.ir.program import (
    Compression,
    GroupDecl,
    Initializer,
    InputDecl,
    LossScaleDecl,
    ModelDecl,
    OptimizerDecl,
    ParallelDecl,
    StateDecl,
    TensorDecl,
)
from compiler.ir.value import HyperParameter, ScheduleDecl
from compiler.lower.context import freeze_options
from compiler.timing.curves import declare_schedule, stand_in
from compiler.timing.units import ClockRates, Pace, PaceProblem
from compiler.types.infer_types import Structure
from graphspec.declare.graph import GraphSpec
from graphspec.declare.schedules import ScheduleSpec


def declare_inputs(spec: GraphSpec) -> tuple[InputDecl, ...]:
    """Return the declared inputs."""
    return tuple(
        InputDecl(name=name, shape=declared.shape, dtype=declared.dtype, place=_place(spec, "inputs", name))
        for name, declared in spec.inputs.items()
    )


def declare_parallel(spec: GraphSpec) -> ParallelDecl | None:
    """Return how several processes take a step together, None for one."""
    if spec.parallel is None or not spec.is_replicated:
        return None
    declared = spec.parallel.compress
    compress: Compression | None = None
    match declared.kind:
        case "none":
            pass
        case "powersgd":
            compress = Compression(kind="powersgd", options={"rank": declared.rank or 1})
        case "threshold" | "sign" as kind:
            usual = 0.5 if kind == "threshold" else 0.0
            threshold = usual if declared.threshold is None else float(declared.threshold)
            compress = Compression(kind=kind, options={"threshold": threshold})
        case "fp16" | "bf16" as kind:
            compress = Compression(kind=kind, options={})
    return ParallelDecl(
        buffers=spec.parallel.buffers,
        is_sharded=spec.is_sharded,
        compress=compress,
        bucket_mb=spec.parallel.bucket_mb,
    )


def declare_states(spec: GraphSpec) -> tuple[StateDecl, ...]:
    """Return every state that some op uses."""
    used = find_used_states(spec)
    return tuple(
        StateDecl(
            name=name,
            shape=declared.shape,
            dtype=declared.dtype,
            initializer=_initializer(declared.init),
            place=_place(spec, "state", name),
        )
        for name, declared in spec.state.items()
        if name in used
    )


def declare_models(
    spec: GraphSpec, models: Mapping[str, ModelFacts], structure: Structure, backend: str
) -> tuple[ModelDecl, ...]:
    """Return every model that some op uses, hidden shadows included; each after the one it is like."""
    shadows = spec.shadows()
    used = find_used_models(spec).union(shadows)
    found: dict[str, ModelDecl] = {}
    for name, facts in models.items():
        if name not in used:
            continue
        root = spec.models[facts.root]
        layers = structure.layers.get(facts.root)
        own = spec.models.get(name)
        kind: Literal["class", "layers", "parameter"] = "class" if root.layers is None else "layers"
        parameters = layers.parameters if layers is not None else ()
        if root.parameter is not None:
            kind, initializer = "parameter", _initializer(root.parameter.init)
            value = TensorDecl(name="value", shape=root.parameter.shape, initializer=initializer)
            parameters = (value,) if layers is None else parameters
        found[name] = ModelDecl(
            name=name,
            kind=kind,
            class_path=root.class_path(backend),
            args=freeze_options(root.args),
            layers=layers.layers if layers is not None else (),
            parameters=parameters,
            buffers=layers.buffers if layers is not None else (),
            like=shadows[name].ema if own is None else own.like,
            initial="copy" if own is None or (own.like is not None and own.init == "copy") else "own",
            tied=find_tied(spec, name),
            trained=facts.updated,
            weights=own.weights if own is not None else None,
            frozen=tuple(group.match for group in (own.groups if own is not None else ()) if group.is_frozen),
            compute=facts.compute,
            recomputes=facts.recomputes,
            place=_place(spec, "ops" if own is None else "models", name),
        )
    before = {name: [] if model.like is None else [model.like] for name, model in found.items()}
    return tuple(found[name] for name in sort(before))


def declare_optimizers(spec: GraphSpec, backend: str, pace: Pace) -> tuple[OptimizerDecl, ...]:
    """Return the optimizer cells that some update uses: a model's own, or an update's.

    A schedule that cannot be counted, which `check_schedules` reports, has a stand-in.
    """
    found: list[OptimizerDecl] = []
    for cell in find_optimizers(spec):
        optimizer, rates = cell.optimizer, find_clock_rates(spec, cell, pace)
        path = optimizer.class_.find(backend) if optimizer.class_ is not None else None
        groups: list[GroupDecl] = []
        own = {each.choice: each.name for each in find_ruled(spec, cell.owner, cell.models)}
        for model in (each for each in cell.models if each in spec.models and not cell.chosen):
            for index, group in enumerate(spec.models[model].groups):
                decay = group.weight_decay
                groups.append(
                    GroupDecl(
                        model=model,
                        index=index,
                        match=group.match,
                        lr_scale=_declare_number(1.0 if group.lr_scale is None else group.lr_scale, rates),
                        weight_decay=None if decay is None else _declare_number(decay, rates),
                        frozen=group.is_frozen,
                        optimizer=own.get((model, group.match), "") if group.optimizer is not None else "",
                    )
                )
        options: dict[str, HyperParameter] = {}
        for key, value in optimizer.resolved().items():
            match value:
                case tuple():
                    options[key] = tuple(_declare_number(each, rates) for each in value)
                case ScheduleSpec():
                    options[key] = _declare_number(value, rates)
                case "dense" if key == "sparse":
                    pass  # how a rule steps without the option
                case _:
                    options[key] = value
        declared = OptimizerDecl(
            name=cell.name,
            rule=optimizer.name or path or "",
            builtin=optimizer.name is not None,
            models=cell.models,
            excluded=cell.excluded,
            chosen=cell.chosen,
            left=cell.left,
            groups=tuple(groups),
            options=options,
            place=_place(spec, *cell.path),
        )
        found.append(declared)
    return tuple(found)


def _declare_number(value: float | ScheduleSpec, rates: ClockRates) -> float | ScheduleDecl:
    """Return a number of a group, a schedule in ticks of its clock."""
    if not isinstance(value, ScheduleSpec):
        return value
    try:
        return declare_schedule(value, rates)
    except PaceProblem:
        return stand_in(value)


def _initializer(init: str | float) -> Initializer:
    """Return the initializer of a `parameter:` or a state."""
    match init:
        case "zeros":
            return Initializer(kind="zeros")
        case "ones":
            return Initializer(kind="ones")
        case "normal":
            return Initializer(kind="normal", bound=1.0)
        case "uniform" | "unit_normal":
            return Initializer(kind=init, bound=1.0)
        case _:
            return Initializer(kind="constant", bound=float(init))


def _place(spec: GraphSpec, *path: str | int) -> str:
    """Return where something is declared, or nothing for specs built in Python."""
    return place_in(spec.span(*path, key=True))


def declare_loss_scale(spec: GraphSpec) -> LossScaleDecl | None:
    """Return the loss scale of a spec, None where it has none."""
    declared = spec.loss_scale
    if declared is None:
        return None
    return LossScaleDecl(
        initial=declared.initial,
        is_fixed=declared.kind == "fixed",
        growth_steps=declared.growth_steps,
        growth_factor=declared.growth_factor,
        backoff_factor=declared.backoff_factor,
        min_scale=declared.min_scale,
        most_skips=declared.max_consecutive_skips,
    )

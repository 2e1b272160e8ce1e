"""Optimizers of PyTorch, their schedules and groups, as the language has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from compiler.ir.value import Json
from graphspec.words import enumerate_words
from runtime.audit.trace import Tick
from runtime.port.recorded_loop import Loop
from runtime.port.tape import Model, as_list

_ADAM: Mapping[str, object] = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0}
RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "SGD": ("sgd", {"lr": 1e-3, "momentum": 0, "dampening": 0, "nesterov": False, "weight_decay": 0}),
    "Adam": ("adam", _ADAM),
    "AdamW": ("adamw", {**_ADAM, "weight_decay": 1e-2}),
    "RMSprop": (
        "rmsprop",
        {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False},
    ),
    "Adagrad": (
        "adagrad",
        {"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10},
    ),
    "Adadelta": ("adadelta", {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0}),
    "Adamax": ("adamax", {**_ADAM, "lr": 2e-3}),
    "NAdam": ("nadam", {**_ADAM, "lr": 2e-3, "momentum_decay": 4e-3}),
}
"""By class: the name in the language, and the options with their defaults, which are the same in both."""
_OFF = ("amsgrad", "maximize", "decoupled_weight_decay")
"""Options that the language lacks; AdamW is the Adam whose decay is decoupled."""


def describe_rule(rule: str, options: Mapping[str, object]) -> tuple[Json, str]:
    """Return an optimizer in the language, and what cannot be said of it, empty if all can."""
    if rule not in RULES:
        return {"name": "sgd"}, f"the language has no optimizer {rule}"
    name, defaults = RULES[rule]
    found: dict[str, Json] = {"name": name}
    for key, default in defaults.items():
        given = options.get(key, default)
        if given != default:
            found[key] = _as_json(given)
    lacking = [key for key in _OFF if options.get(key) and not (rule == "AdamW" and key == "decoupled_weight_decay")]
    return (found if len(found) > 1 else name), f"{rule} with {lacking[0]}" if lacking else ""


def _as_json(value: object) -> Json:
    match value:
        case bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_as_json(each) for each in as_list(cast("object", value))]
        case _:
            return str(value)


def find_schedule(loop: Loop, optimizer: str) -> tuple[Mapping[str, object] | None, str]:
    """Return the schedule of a learning rate in the language, and what cannot be said of it."""
    steps, events = loop.steps[optimizer], loop.tape.trace.events
    schedule = steps[0].schedule
    ticks = [at for at, each in enumerate(events) if isinstance(each, Tick) and each.optimizer == optimizer]
    if schedule is not None and not ticks:
        return None, f"{schedule.kind}, which sets its learning rate, was not advanced: write a schedule"
    ends = zip(steps, [*(each.position for each in steps[1:]), len(events)], strict=True)
    counts = [sum(step.position <= at < end for at in ticks) for step, end in ends]
    if schedule is not None and schedule.curve is not None and set(counts[:-1]) <= {1} and counts[-1] <= 1:
        return schedule.curve, ""
    rates = {each.groups[0].get("lr") for each in steps}
    return None, "its learning rate changes: write a schedule" if ticks or len(rates) > 1 else ""


def find_moving(loop: Loop, optimizer: str) -> str:
    """Return which options of an optimizer change besides its learning rate, and what to do about it."""
    names = dict.fromkeys(
        name
        for step in loop.steps[optimizer][1:]
        for group, first in zip(step.groups, loop.steps[optimizer][0].groups, strict=False)
        for name, value in first.items()
        if name != "lr" and group.get(name) != value
    )
    shown = enumerate_words([f"`{each}`" for each in names], conjunction="and")
    what = f"option {shown} changes" if len(names) == 1 else f"options {shown} change"
    return f"its {what}: write a schedule" if names else ""


def find_groups(loop: Loop, model: Model) -> tuple[list[dict[str, object]], str]:
    """Return the groups of a model in the language, and what cannot be said of them."""
    parameters = {each.number for each in loop.tape.trace.tensors if each.kind == "params"}
    own = {number: name for number, name in model.tensors.items() if number in parameters}
    steppers = find_steppers(loop, model)
    if not steppers:
        return [], ""
    if len({loop.turns.get(name, name) for name in steppers}) > 1:
        return [], f"{' and '.join(steppers)} step parts of it: make these models of their own"
    steps = loop.steps[steppers[0]][0]
    moving = loop.moving.get(steppers[0], frozenset())
    parts: dict[int, list[str]] = {}
    for number, name in own.items():
        at = next((index for index, each in enumerate(steps.members) if number in each), -1)
        parts.setdefault(at if number in moving else -1, []).append(model.prefix + name)
    names, found, todo = [model.prefix + each for each in own.values()], list[dict[str, object]](), ""
    base = steps.groups[0]
    for at, members in parts.items():
        group = steps.groups[at]
        fields: dict[str, object] = {"frozen": True} if at < 0 else {}
        changed = (
            {key for key in base if key != "initial_lr" and group.get(key) != base[key]} if at >= 0 else set[str]()
        )
        if "lr" in changed:
            fields["lr_scale"] = float(f"{float(str(group['lr'])) / float(str(base['lr'])):.12g}")
        if "weight_decay" in changed:
            fields["weight_decay"] = group["weight_decay"]
        todo = todo or ("its groups have other options: see `groups`" if changed - {"lr", "weight_decay"} else "")
        found += [{"match": write_pattern(members, names), **fields}] if fields else []
    return found, todo


def find_steppers(loop: Loop, model: Model) -> list[str]:
    """Return the optimizers that step a model."""
    return [name for name, each in loop.trained.items() if model.name in each and name in loop.fired]


def write_pattern(members: Sequence[str], names: Sequence[str]) -> str:
    """Return a pattern that finds some of the parameters, by the modules that have no others."""
    rest, parts = set(names) - set(members), dict[str, None]()
    for name in members:
        heads = (name[: at + 1] for at, letter in enumerate(name) if letter == ".")
        head = next((each for each in heads if not any(other.startswith(each) for other in rest)), None)
        parts[(head or name).replace(".", "[.]") + ("" if head else "$")] = None
    found = list(parts)
    return f"^{found[0]}" if len(found) == 1 else f"^({'|'.join(found)})"

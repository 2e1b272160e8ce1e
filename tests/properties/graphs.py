"""What decides which orders there are: forwards that are recomputed, and averages that are evaluated as in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.causality import defined
from tests.properties.tied import declare

if TYPE_CHECKING:
    from tests.properties.specs import Draft

UNCHECKED = frozenset({"stop", "snapshot", "outputs"})
UNREAD = ("forward", "update", "after", "every")


def recompute(draft: Draft) -> None:
    """Make models that are called in one mode only classes that recompute their forwards when a gradient is taken."""
    likes = {model.get("like") for model in draft.models.values()}
    tapped = {op["forward"] for op in draft.ops.values() if "forward" in op and "outputs" in op}
    plain = [name for name, model in draft.models.items() if "layers" in model and name not in likes | tapped]
    plain = [name for name in plain if not (draft.with_buffers(name) or draft.is_table(name) or feeds(draft, name))]
    plain = [name for name in plain if len(find_modes(draft, name)) < 2]
    for name in draft.random.sample(plain, min(len(plain), draft.random.randint(1, 2))):
        optimizer = draft.models[name]["optimizer"]
        declare(draft, name, "Recoder", recomputes=True)
        draft.models[name]["optimizer"] = optimizer


def find_modes(draft: Draft, model: str) -> set[object]:
    """Return what the forwards of a model say of their mode."""
    return {op.get("train") for op in draft.ops.values() if op.get("forward") == model}


def checkpoint(draft: Draft) -> None:
    """Let gradients run some forwards again, those of a model in one mode only."""
    plain = [name for name, op in draft.ops.items() if "forward" in op and UNCHECKED.isdisjoint(op)]
    modes: dict[str, object] = {}
    for name in draft.random.sample(plain, (len(plain) + 1) // 2):
        op = draft.ops[name]
        if modes.setdefault(op["forward"], op.get("train")) == op.get("train"):
            draft.ops[name] = {**op, "checkpoint": True}


def feeds(draft: Draft, model: str) -> bool:
    """Return whether another model is called with what a model makes: nobody tells the sizes of a class's outputs."""
    calls = {name for name, op in draft.ops.items() if op.get("forward") == model}
    return any("forward" in draft.ops[name] for name in _find_readers(draft, calls) - calls)


def is_behind_class(draft: Draft, value: str) -> bool:
    """Return whether a value is made from what a class makes: nobody tells its sizes."""
    forwards = {name: draft.root(op["forward"]) for name, op in draft.ops.items() if "forward" in op}
    calls = {name for name, model in forwards.items() if "class" in draft.models.get(model, {})}
    return value in _made_by(draft, _find_readers(draft, calls))


def _find_readers(draft: Draft, names: set[str]) -> set[str]:
    """Return some ops and all that are computed from what they make."""
    found = set(names)
    while reached := {name for name, op in draft.ops.items() if _made_by(draft, found) & find_read(op)} - found:
        found |= reached
    return found


def _made_by(draft: Draft, names: set[str]) -> set[str]:
    """Return the values of some ops."""
    return {value for name in names for value in defined(name, draft.ops[name])}


def find_read(op: object) -> set[str]:
    """Return all texts in an op but the names of models, and of what comes before."""
    if isinstance(op, dict | list):
        parts = [part for key, part in op.items() if key not in UNREAD] if isinstance(op, dict) else op
        return set().union(*map(find_read, parts))
    return {op} if isinstance(op, str) else set()


def evaluate_in_training(draft: Draft) -> None:
    """Call a model as in training in evaluation, one that an average stands in for where there is one."""
    swapped = [op["ema"] for op in draft.ops.values() if "eval" in op.get("use", {})]
    called = [name for name in swapped or draft.models if draft.is_called(name) and name not in draft.slow]
    called = [name for name in called if "parameter" not in draft.models[name] and not draft.is_table(name)]
    if called:
        model = draft.random.choice(called)
        draft.ops["drilled"] = {"forward": model, "inputs": "x", "mode": "eval", "train": True}

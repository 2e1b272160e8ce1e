"""Sums and means over rows that lie along another axis than the first, in windows and in micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.properties.counted import KEPT
from tests.properties.optimizers import random_optimizer

if TYPE_CHECKING:
    from tests.properties.specs import Draft

BATCH, ELSE = "batch", "else"
BENT = ("square", "tanh", "sigmoid")


def move_rows(draft: Draft) -> None:
    """Add a model whose loss is made of rows that calls have moved, and an update of it over several steps or parts."""
    random, is_sum = draft.random, draft.chance(0.6)
    optimizer = {"name": "sgd", "lr": 0.02} if draft.chance(0.7) else random_optimizer(random)
    draft.models["mover"] = {"layers": [{"linear": draft.size}], "optimizer": optimizer}
    can_split = "micro_batches" not in draft.fields and _counts_by_rows(draft)
    if can_split and draft.chance(0.4):
        draft.fields["micro_batches"] = random.choice([2, 3])
    seen = [name for name in draft.values.usable() if _is_of_layers(draft, name)]
    draft.ops["moved_seen"] = {"forward": "mover", "inputs": random.choice(["x", "y", *seen])}
    draft.ops["moved_apart"] = {"call": "sub", "inputs": ["moved_seen", random.choice(["x", "y"])]}
    terms = [_add_chain(draft, f"moved{number}", is_sum=is_sum) for number in range(random.choice([1, 1, 2]))]
    if draft.chance(0.2):
        terms.append("moved_plain")
        reduction = {"reduction": "sum"} if is_sum else {}
        draft.ops["moved_plain"] = {"loss": "mse", "inputs": ["moved_apart", 0.3], **reduction}
    if len(terms) > 1:
        draft.ops["moved_loss"] = {"call": random.choice(["add", "sub"]), "inputs": terms[:2]}
    else:
        draft.ops["moved_loss"] = {"call": "mul", "inputs": [terms[0], 0.5]}
    window: dict | int = random.choice([2, 2, 2, 3, {"steps": 2, "reduce": "steps"}, {"steps": 2, "reduce": "sum"}])
    whole: dict = {"update": ["mover"], "loss": "moved_loss"}
    if draft.chance(0.25):
        draft.ops["moved_slopes"] = {"gradient": "moved_loss", "wrt": ["mover"]}
        whole = {"update": ["mover"], "gradients": "moved_slopes"}
    if "micro_batches" not in draft.fields or draft.chance(0.5):
        whole["accumulate"] = window
    draft.ops["step_mover"] = whole


def _is_of_layers(draft: Draft, value: str) -> bool:
    """Return whether a value is what layers make, whose sizes are known behind anything."""
    model = draft.ops.get(value, {}).get("forward")
    return model in draft.models and "layers" in draft.models[draft.root(model)]


def _counts_by_rows(draft: Draft) -> bool:
    """Return whether a batch can be split: nothing orders all of it, overflows, or has its own count."""
    words = repr(draft.ops)
    return not any(word in words for word in ("permutation", "ignore_index", KEPT)) and not draft.inputs


def _add_chain(draft: Draft, stem: str, *, is_sum: bool) -> str:
    """Add calls from a value with rows to one number, in which the rows are added up, or their mean is taken."""
    value = f"{stem}_bent"
    draft.ops[value] = {"call": draft.random.choice(BENT), "inputs": "moved_apart"}
    axes = [BATCH, ELSE]
    if is_sum and draft.chance(0.35):
        value, axes = _multiply(draft, stem, value)
    else:
        for number in range(draft.random.choice([1, 1, 2])):
            value, axes = draft.random.choice([_turn, _turn, _stack])(draft, f"{stem}_{number}", value, axes)
    return _reduce(draft, stem, value, axes, is_sum=is_sum)


def _turn(draft: Draft, name: str, value: str, axes: list[str]) -> tuple[str, list[str]]:
    """Add the axes of a value in another order."""
    dims = list(range(len(axes)))
    while dims == sorted(dims):
        draft.random.shuffle(dims)
    draft.ops[name] = {"call": "permute", "inputs": value, "args": {"dims": dims}}
    return name, [axes[dim] for dim in dims]


def _stack(draft: Draft, name: str, value: str, axes: list[str]) -> tuple[str, list[str]]:
    """Add a value beside another along a new axis."""
    other, place = f"{name}_other", draft.random.randint(0, len(axes))
    draft.ops[other] = {"call": draft.random.choice(["neg", "tanh"]), "inputs": value}
    written = {} if place == 0 and draft.chance(0.5) else {"args": {"axis": place}}
    draft.ops[name] = {"call": "stack", "inputs": [value, other], **written}
    return name, [*axes[:place], ELSE, *axes[place:]]


def _multiply(draft: Draft, stem: str, value: str) -> tuple[str, list[str]]:
    """Add the product of two matrices over their rows."""
    across, _ = _turn(draft, f"{stem}_across", value, [BATCH, ELSE])
    draft.ops[f"{stem}_product"] = {"call": "matmul", "inputs": [across, draft.random.choice(["x", "y", value])]}
    return f"{stem}_product", [ELSE, ELSE]


def _reduce(draft: Draft, stem: str, value: str, axes: list[str], *, is_sum: bool) -> str:
    """Add calls over some of the axes, then over the rest; the first that takes the rows says how they count."""
    first = sorted(draft.random.sample(range(len(axes)), draft.random.randint(1, len(axes) - 1)))
    rest = [axis for axis in range(len(axes)) if axis not in first]
    keeps = draft.chance(0.25)
    listed = [axis - len(axes) if draft.chance(0.3) else axis for axis in first]
    args: dict = {"axis": listed[0] if len(listed) == 1 else listed, **({"keepdims": True} if keeps else {})}
    draft.ops[f"{stem}_part"] = {"call": _choose(draft, axes, first, is_sum), "inputs": value, "args": args}
    draft.ops[f"{stem}_whole"] = {"call": _choose(draft, axes, rest, is_sum), "inputs": f"{stem}_part"}
    return f"{stem}_whole"


def _choose(draft: Draft, axes: list[str], over: list[int], is_sum: bool) -> str:
    if BATCH in [axes[axis] for axis in over]:
        return "sum" if is_sum else "mean"
    return draft.random.choice(["sum", "mean"])

"""Random forwards, calls, draws and losses of a draft, each with what a gradient of it reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.properties.specs import Draft

Reach = frozenset[str]
UNARY = ("tanh", "sigmoid", "softmax", "neg", "square", "clip", "stop", "normalize", "relu", "abs", "sign")
REGRESSIONS = ("mse", "l1", "huber", "cosine", "kl_div", "nt_xent")


class Values:
    """The values of size [batch, size], with the models and values that a gradient of each reaches."""

    def __init__(self) -> None:
        self.reach: dict[str, Reach] = {"x": frozenset({"x"}), "y": frozenset({"y"}), "label": frozenset()}
        self.hidden = {"label"}
        """Values of other sizes."""

    def usable(self) -> list[str]:
        """Return the values of size [batch, size]."""
        return [name for name in self.reach if name not in self.hidden]

    def add(self, name: str, inputs: Iterable[str], models: Iterable[str] = (), *, stop: bool = False) -> None:
        """Add a value made of others."""
        through = frozenset[str]() if stop else frozenset(models).union(*(self.reach[one] for one in inputs))
        self.reach[name] = through | {name}

    def names(self, kinds: Iterable[str], ops: dict) -> list[str]:
        """Return the values made by ops of some kinds."""
        return [name for name in self.usable() if set(kinds) & ops.get(name, {}).keys()]


def add_values(draft: Draft, count: int) -> None:
    """Add forwards, most of them, and calls."""
    for _ in range(count):
        kind = draft.random.random()
        if kind < 0.68:
            add_forward(draft)
        elif kind < 0.78:
            _add_draw(draft)
        elif kind < 0.84 and len(draft.values.usable()) > 3:
            _add_pair(draft)
        else:
            _add_call(draft)
    for model in draft.models:
        if draft.chance(0.8) and not any(op.get("forward") == model for op in draft.ops.values()):
            add_forward(draft, model)


def add_forward(draft: Draft, model: str | None = None) -> None:
    """Add a call of a model; a trainable tensor is put on a value at once."""
    model, name = model or draft.random.choice(list(draft.models)), draft.new("v")
    given = "label" if draft.is_table(model) else _choose(draft)
    if "parameter" in draft.models[model]:
        tensor = draft.new("t")
        draft.ops[tensor] = {"forward": model}
        draft.ops[name] = {"call": draft.random.choice(["mul", "add"]), "inputs": [given, tensor]}
        draft.values.add(name, [given], [model])
        return
    op: dict[str, object] = {"forward": model, "inputs": given}
    if draft.chance(0.25):
        op["train"] = draft.chance(0.2) and model not in draft.slow
    op |= {"stop": True} if draft.chance(0.1) else {}
    op |= {"snapshot": True} if draft.chance(0.06) else {}
    if draft.chance(0.06):
        op["outputs"] = [name, {f"{name}_tap": {"tap": 0}}]
    draft.ops[f"{name}_call" if "outputs" in op else name] = op
    draft.values.add(name, [given], [model], stop="stop" in op)


def _choose(draft: Draft) -> str:
    """Return a value, newer ones more often, so that chains grow."""
    names = draft.values.usable()
    return draft.random.choice(names[-4:] if draft.chance(0.5) else names)


def _add_draw(draft: Draft) -> None:
    name, kind = draft.new("z"), draft.random.choice(["normal", "uniform", "bernoulli"])
    sized = {"like": _choose(draft)} if draft.chance(0.3) else {"shape": ["batch", draft.size]}
    draft.ops[name] = {"random": kind, **sized}
    draft.values.add(name, [], stop=True)


def _add_pair(draft: Draft) -> None:
    """Add two values that go through one model together: joined along the batch, and cut apart."""
    first, second = draft.random.sample(draft.values.usable(), 2)
    models = [name for name in draft.models if "parameter" not in draft.models[name] and not draft.is_table(name)]
    if not models:
        return
    model, stem = draft.random.choice(models), draft.new("both")
    draft.ops[stem] = {"call": "concat", "inputs": [first, second], "args": {"axis": 0}}
    draft.ops[f"{stem}_seen"] = {"forward": model, "inputs": stem}
    parts = [f"{stem}_one", f"{stem}_two"]
    args = {"sections": 2, "axis": 0}
    draft.ops[f"{stem}_cut"] = {"call": "split", "inputs": f"{stem}_seen", "outputs": parts, "args": args}
    for part, given in zip(parts, (first, second), strict=True):
        draft.values.add(part, [given], [model])


def _add_call(draft: Draft) -> None:
    name = draft.new("c")
    if draft.chance(0.5):
        call, inputs = draft.random.choice(UNARY), [_choose(draft)]
    else:
        call, inputs = draft.random.choice(["add", "mul", "sub", "lerp"]), [_choose(draft), _choose(draft)]
    if call == "sub" and (draft.chance(0.5) or inputs[0] == inputs[1]):
        inputs[1] = _add_row(draft, inputs[1], ["mean", "sum"])
    if call == "mul" and "forward" in draft.ops.get(inputs[1], {}) and draft.chance(0.4):  # of others two may be equal
        inputs[1] = _add_row(draft, inputs[1], ["max", "min"])
    op: dict[str, object] = {"call": call, "inputs": [*inputs, 0.3] if call == "lerp" else inputs}
    if call == "clip":
        op["args"] = {"min": -0.7, "max": 0.7}
    draft.ops[name] = op
    draft.values.add(name, inputs, stop=call in ("stop", "sign"))


def _add_row(draft: Draft, given: str, calls: list[str]) -> str:
    """Add one number per row of a value; return its name."""
    name = draft.new("r")
    draft.ops[name] = {"call": draft.random.choice(calls), "inputs": given, "args": {"axis": 1, "keepdims": True}}
    draft.values.reach[name] = draft.values.reach[given] | {name}
    draft.values.hidden.add(name)
    return name


# ------------------------------------------------------------ losses


def add_losses(draft: Draft, count: int) -> None:
    """Add losses, some of them sums of others, some with a penalty on a gradient."""
    for _ in range(count):
        name = _add_loss(draft)
        if name is not None and draft.chance(0.3):
            add_penalty(draft, name)
    if len(draft.losses) > 1 and draft.chance(0.4):
        first, second = draft.random.sample(list(draft.losses), 2)
        _add_sum(draft, "total", [first, second])


def _add_loss(draft: Draft) -> str | None:
    """Add a loss of a value that reaches some model."""
    values = [v for v in draft.values.usable() if draft.values.reach[v] & draft.models.keys()]
    if not values:
        return None
    value, name = draft.random.choice(values[-5:]), draft.new("l")
    op, reach = _describe_loss(draft, value)
    op |= {"weight": draft.random.choice([0.5, 2.0])} if draft.chance(0.15) else {}
    op |= {"reduction": "sum"} if draft.chance(0.1) else {}
    draft.ops[name] = op
    draft.reached[name] = draft.losses[name] = reach
    draft.terms[name] = [name]
    return name


def _describe_loss(draft: Draft, value: str) -> tuple[dict, Reach]:
    reach = draft.values.reach[value]
    match draft.random.random():
        case kind if kind < 0.3:
            return {"loss": draft.random.choice(["mse", "bce_with_logits"]), "inputs": [value, 1.0]}, reach
        case kind if kind < 0.4:
            return {"loss": "cross_entropy", "inputs": [value, "label"]}, reach
        case kind if kind < 0.5:
            return {"loss": draft.random.choice(["wasserstein"]), "inputs": value, "args": {"sign": -1.0}}, reach
        case kind if kind < 0.6:
            return {"loss": draft.random.choice(["hinge", "l1"]), "inputs": [value, -1.0]}, reach
        case _:
            other = draft.random.choice([one for one in draft.values.usable() if one != value])
            return {"loss": draft.random.choice(REGRESSIONS), "inputs": [value, other]}, (
                reach | draft.values.reach[other]
            )


def add_penalty(draft: Draft, loss: str) -> None:
    """Add the square of a gradient by a value to a loss."""
    values = sorted(draft.losses[loss] - draft.models.keys())
    if not values:
        return
    wanted, stem = draft.random.choice(values), f"{loss}_slope"
    stop = draft.chance(0.15)
    draft.ops[stem] = {"gradient": loss, "wrt": wanted} | ({"stop": True} if stop else {})
    reach = draft.losses[loss]
    sources = [one for one in draft.values.usable() if wanted in draft.values.reach[one] and one != wanted]
    sums = ("add", "sub", "mul", "neg")  # whose terms would all have to depend on what is wanted
    sources = [one for one in sources if draft.ops.get(one, {}).get("call") not in sums]
    if sources and draft.chance(0.25):
        source = draft.random.choice(sources)
        draft.ops[stem] |= {"gradient": source, "grad_outputs": draft.random.choice([source, "x"])}
        reach = draft.values.reach[source]
    seen = stem
    if draft.chance(0.4):
        seen = f"{loss}_long"
        draft.ops[seen] = {"call": "norm", "inputs": stem, "args": {"axis": 1}}
    draft.ops[f"{loss}_steep"] = {"loss": "mse", "inputs": [seen, 1.0]}
    if stop:
        return
    draft.reached[f"{loss}_steep"], draft.terms[f"{loss}_steep"] = reach, [f"{loss}_steep"]
    _add_sum(draft, f"{loss}_sum", [loss, f"{loss}_steep"])


def _add_sum(draft: Draft, name: str, parts: list[str]) -> None:
    draft.ops[name] = {"call": "add", "inputs": parts}
    draft.reached[name] = frozenset().union(*(draft.reached[part] for part in parts))
    draft.losses[name] = frozenset().union(*(draft.losses.get(part, frozenset()) for part in parts))
    draft.terms[name] = [term for part in parts for term in draft.terms[part]]

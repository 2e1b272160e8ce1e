"""Terms of the rest of the library: calls that compare, choose, order and arrange, and losses of few inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.properties.joining import find_place, join

if TYPE_CHECKING:
    from tests.properties.specs import Draft

Ops = dict[str, dict]
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
AXIS = {"axis": 1, "keepdims": True}
RESIZED: tuple[dict, ...] = (
    {"factor": 2},
    {"size": [2, 3]},
    {"size": [1, 5], "method": "bilinear"},
    {"factor": 2, "method": "bilinear"},
)


def add_functions(draft: Draft) -> None:
    """Add a term of such functions to the loss of an update."""
    place = find_place(draft)
    if place is not None:
        update, value = place
        others = [one for one in draft.values.usable() if one != value]
        ops = draft.random.choice(TERMS)(draft, value, draft.random.choice(others))
        join(draft, update, _rename(ops), "lib_told")


def _rename(ops: Ops) -> Ops:
    """Return ops with names that no others have."""
    own = {value for name, op in ops.items() for value in (name, *op.get("outputs", ()))}

    def rename(values: list) -> list:
        return [f"lib_{each}" if each in own else each for each in values]

    lists = ("inputs", "outputs")
    return {f"lib_{name}": {**op, **{key: rename(op[key]) for key in lists if key in op}} for name, op in ops.items()}


def _call(call: str, *inputs: object, **args: object) -> dict:
    return {"call": call, "inputs": [*inputs], **({"args": args} if args else {})}


def _loss(loss: str, *inputs: object, **args: object) -> dict:
    return {"loss": loss, "inputs": [*inputs], **({"args": args} if args else {})}


def _fit(value: str = "made") -> dict:
    return _loss("mse", value, 0.5)


def _choose(draft: Draft, value: str, other: str) -> Ops:
    """Take one value where a mask holds, else another."""
    masks: Ops = {"mask": _call(draft.random.choice(COMPARISONS), value, other), "high": _call("greater", other, 0.0)}
    masks["both"] = _call(draft.random.choice(["logical_and", "logical_or"]), "mask", "high")
    masks["neither"] = _call("logical_not", "both")
    return {**masks, "made": _call("where", draft.random.choice(["both", "neither"]), value, "x"), "told": _fit()}


def _bound(draft: Draft, value: str, other: str) -> Ops:
    limit = draft.random.choice([other, 0.2])
    return {"made": _call(draft.random.choice(["minimum", "maximum"]), value, limit), "told": _fit()}


def _grow(draft: Draft, value: str, other: str) -> Ops:
    """Apply a function of positive numbers."""
    made = draft.random.choice(
        [
            _call("sqrt", "grown"),
            _call("log", "grown"),
            _call("pow", "grown", 1.5),
            _call("pow", value, 2),
            _call("div", other, "grown"),
            _call("exp", "grown"),
        ]
    )
    return {"steep": _call("softplus", value), "grown": _call("add", "steep", 0.1), "made": made, "told": _fit()}


def _order(draft: Draft, value: str, other: str) -> Ops:
    """Sort what no two elements of are equal in, and take the elements of another value at these places."""
    args = draft.random.choice([{"k": 2}, {"k": 1, "largest": False, "axis": 1}, {"axis": 1}, {"descending": True}])
    kind = "topk" if "k" in args else "sort"
    return {
        "apart": _call("add", value, "x"),
        "ordered": {**_call(kind, "apart", **args), "outputs": ["first", "places"]},
        "taken": _call("gather", other, "places", axis=1),
        "made": _call("mul", "first", "taken"),
        "told": _fit(),
    }


def _pair(draft: Draft, value: str, other: str) -> Ops:
    """Multiply elements in pairs; an outer product pairs samples, which micro-batches keep apart."""
    if "micro_batches" not in draft.fields and draft.chance(0.5):
        means = {"level": _call("mean", value, axis=1), "columns": _call("mean", other, axis=0)}
        return {**means, "made": _call("outer", "level", "columns"), "told": _fit()}
    equation = draft.random.choice(["bi,bj->bij", "bi, bi -> b", "bi,bj->bj"])
    return {"made": _call("einsum", value, other, equation=equation), "told": _fit()}


def _resize(draft: Draft, value: str, other: str) -> Ops:
    image = _call("reshape", value, shape=["batch", 1, 1, draft.size])
    return {"image": image, "made": _call("interpolate", "image", **draft.random.choice(RESIZED)), "told": _fit()}


def _arrange(draft: Draft, value: str, other: str) -> Ops:
    """Go along the axis of the features."""
    made = draft.random.choice(
        [
            _call("logsumexp", value, **AXIS),
            _call("softmax", value, axis=1),
            _call("log_softmax", value, axis=1),
            _call("normalize", value, axis=1),
            _call("cumsum", value, axis=1),
            _call("subscript", value, at=":, 1:, None"),
            _call("subscript", value, at=":, -1"),
            _call("expand", "one", shape=["batch", draft.size]),
        ]
    )
    one = {"one": _call("mean", value, **AXIS)} if made["inputs"] == ["one"] else {}
    return {**one, "made": made, "told": _fit()}


def _classify(draft: Draft, value: str, other: str) -> Ops:
    """Compare with classes: those of the batch, or where another value is greatest."""
    hot = _call("one_hot", "label", classes=draft.size)
    match draft.random.choice(["hot", "dice", "best", "nll", "axis"]):
        case "hot":
            args = draft.random.choice([{}, {"alpha": 0.5, "gamma": 1.5}])
            return {"hot": hot, "told": _loss("focal", value, "hot", **args)}
        case "dice":
            args = draft.random.choice([{}, {"axis": 1, "smooth": 0.5}])
            return {"hot": hot, "made": _call("sigmoid", value), "told": _loss("dice", "made", "hot", **args)}
        case "best":
            return {"best": _call("argmax", other, axis=1), "told": _loss("cross_entropy", value, "best", axis=-1)}
        case "nll":
            args = draft.random.choice([{}, {"ignore_index": 0}]) if "micro_batches" not in draft.fields else {}
            return {"made": _call("log_softmax", value), "told": _loss("nll", "made", "label", **args)}
        case _:
            return {"best": _call("argmax", other), "told": _loss("nll", value, "best")}


def _measure(draft: Draft, value: str, other: str) -> Ops:
    """Measure by a likelihood, a distance, or how easy samples are."""
    positive = {"steep": _call("softplus", value), "made": _call("add", "steep", 0.2)}
    losses = {"each": {**_loss("mse", value, other), "reduction": "none"}}
    return draft.random.choice(
        [
            {"made": _call("sigmoid", value), "told": _loss("bce", "made", 0.3)},
            {**positive, "told": _loss("gaussian_nll", other, 0.5, "made", full=True, eps=0.1)},
            {**positive, "told": _loss("poisson_nll", "made", 2.0, log_input=False, eps=0.1)},
            {"told": _loss("triplet_margin", value, "x", "y", margin=5.0, swap=True)},
            {**losses, "told": _loss("super_loss", "each", regularization=2.0)},
            {**losses, "told": _loss("super_loss", "each", threshold=0.5)},
        ]
    )


def _align(draft: Draft, value: str, other: str) -> Ops:
    """Find a class of the batch, or none, in a sequence of three; the last class is the blank."""
    return {
        "frames": _call("stack", value, other, "x", axis=1),
        "scores": _call("pad", "frames", pad=[0, 1]),
        "word": _call("reshape", "label", shape=["batch", 1]),
        "times": {"random": "randint", "shape": ["batch"], "args": {"low": 2, "high": 4}},
        "lengths": {"random": "randint", "shape": ["batch"], "args": {"high": 2}},
        "told": _loss(
            "ctc",
            "scores",
            "word",
            "times",
            "lengths",
            blank=draft.size,
            **draft.random.choice([{}, {"zero_infinity": True}]),
        ),
    }


def _draw(draft: Draft, value: str, other: str) -> Ops:
    """Add draws of other spreads."""
    args = draft.random.choice([{"mean": 0.5, "std": 0.2}, {"low": -1.0, "high": 0.5}])
    drawn = {"random": "normal" if "mean" in args else "uniform", "like": other, "args": args}
    return {"spread": drawn, "made": _call("add", value, "spread"), "told": _fit()}


TERMS: tuple[Callable[[Draft, str, str], Ops], ...] = (
    _choose,
    _bound,
    _grow,
    _order,
    _pair,
    _resize,
    _arrange,
    _arrange,
    _classify,
    _classify,
    _measure,
    _measure,
    _align,
    _draw,
)

"""The library: names, operands and options of the built-in losses, calls, metrics, transforms and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphspec.declare.options import Option

Family: TypeAlias = Literal["loss", "call", "metric", "transform", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a built-in function takes: its operands in order, its options, and what it means in one line."""

    meaning: str
    operands: tuple[str, ...] = ()
    """Names of the operands, for messages; the last may be repeated where ``repeats``."""
    repeats: bool = False
    options: tuple[Option, ...] = ()
    results: int = 1
    """How many values it gives; `split` gives as many as its ``sections`` say."""

    @property
    def fewest(self) -> int:
        """Return the least number of operands."""
        return len(self.operands)

    @property
    def most(self) -> int | None:
        """Return the greatest number of operands, or None where there is no limit."""
        return None if self.repeats else len(self.operands)


def _axis(default: int | None, meaning: str = "the axis to work along") -> Option:
    kind = "axes" if default is None else "int"
    return Option(name="axis", kind=kind, default=default, meaning=meaning)


def _positive(name: str, default: float, meaning: str) -> Option:
    return Option(name=name, kind="number", default=default, above=0.0, meaning=meaning)


def _number(name: str, default: float | None, meaning: str, *, required: bool = False) -> Option:
    return Option(name=name, kind="number", default=default, required=required, meaning=meaning)


def _unary(meaning: str, *options: Option) -> Signature:
    return Signature(meaning=meaning, operands=("x",), options=options)


def _pair(meaning: str) -> Signature:
    return Signature(meaning=meaning, operands=("a", "b"))


def _loss(meaning: str, operands: tuple[str, ...], *options: Option) -> Signature:
    return Signature(meaning=meaning, operands=operands, options=options)


ALL_AXES = "the axis or axes to reduce (default: all)"
REDUCTION = (_axis(None, ALL_AXES), Option(name="keepdims", kind="bool", default=False, meaning="keep axes of size 1"))
PREDICTION = ("prediction", "target")
IGNORE_INDEX = Option(
    name="ignore_index", kind="int", default=None, meaning="a class index that is left out of sum and count"
)

LOSSES: Mapping[str, Signature] = {
    "cross_entropy": _loss(
        "-log softmax(logits) at the target class, or against target probabilities",
        ("logits", "target"),
        _axis(1, "the axis of the classes"),
        Option(
            name="label_smoothing",
            kind="number",
            default=0.0,
            minimum=0.0,
            maximum=1.0,
            meaning="probability spread evenly over all classes",
        ),
        IGNORE_INDEX,
    ),
    "nll": _loss("minus the log-probability of the target class", ("log_probabilities", "target"), IGNORE_INDEX),
    "bce": _loss("binary cross-entropy of probabilities", ("probabilities", "target")),
    "bce_with_logits": _loss("binary cross-entropy of logits", ("logits", "target")),
    "mse": _loss("squared difference", PREDICTION),
    "l1": _loss("absolute difference", PREDICTION),
    "huber": _loss(
        "half the squared difference up to delta, linear beyond",
        PREDICTION,
        _positive("delta", 1.0, "where the square becomes a line"),
    ),
    "kl_div": _loss(
        "KL(teacher || student) of two sets of logits, mean over the batch",
        ("student", "teacher"),
        _positive("temperature", 1.0, "divisor of both logits"),
    ),
    "hinge": _loss("max(0, 1 - target * score) with targets -1 and 1", ("score", "target")),
    "cosine": _loss("1 - cosine similarity of rows", ("a", "b")),
    "nt_xent": _loss(
        "SimCLR's contrastive loss of two views",
        ("a", "b"),
        _positive("temperature", 0.5, "divisor of the similarities"),
    ),
    "focal": _loss(
        "binary cross-entropy of logits, less where they are right already",
        ("logits", "target"),
        Option(name="alpha", kind="number", default=0.25, minimum=0.0, maximum=1.0, meaning="weight of the target 1"),
        Option(name="gamma", kind="number", default=2.0, minimum=0.0, meaning="how much less what is right counts"),
    ),
    "dice": _loss(
        "1 - twice the overlap of probabilities and target, divided by the sum of both",
        ("probabilities", "target"),
        Option(
            name="axis",
            kind="axes",
            default=None,
            minimum=1.0,
            meaning="the axes to sum over (default: all but the first)",
        ),
        _positive("smooth", 1e-7, "added above and below the bar"),
    ),
    "gaussian_nll": _loss(
        "minus the log-density of the target under a normal distribution",
        ("mean", "target", "variance"),
        Option(name="full", kind="bool", default=False, meaning="whether the constant log(2 pi) / 2 is added"),
        _positive("eps", 1e-6, "the least variance"),
    ),
    "poisson_nll": _loss(
        "minus the log-probability of a count under a Poisson distribution",
        ("rate", "target"),
        Option(name="log_input", kind="bool", default=True, meaning="whether the logarithm of the rate is given"),
        Option(name="full", kind="bool", default=False, meaning="whether Stirling's estimate of log(target!) is added"),
        _positive("eps", 1e-8, "added to a rate before its logarithm"),
    ),
    "triplet_margin": _loss(
        "how much nearer to the anchor than margin beyond the positive the negative is",
        ("anchor", "positive", "negative"),
        _positive("margin", 1.0, "how much farther the negative should be"),
        Option(name="swap", kind="bool", default=False, meaning="whether the negative's distance is the lesser of two"),
    ),
    "ctc": _loss(
        "minus the log-probability of all alignments of a sequence of classes",
        ("logits", "target", "input_lengths", "target_lengths"),
        Option(
            name="blank",
            kind="int",
            default=0,
            minimum=0.0,
            meaning="the class between two classes, which is none itself",
        ),
        Option(name="zero_infinity", kind="bool", default=False, meaning="whether what has no alignment is left out"),
    ),
    "wasserstein": _loss("sign times the mean score", ("score",), _number("sign", 1.0, "1 or -1")),
    "super_loss": _loss(
        "per-sample losses, weighted by confidence",
        ("losses",),
        _number("threshold", None, "threshold of a loss (default: the mean of the batch)"),
        _positive("regularization", 1.0, "how slowly the weights change"),
    ),
}

CALLS: Mapping[str, Signature] = {
    "add": Signature(meaning="a + b + ...", operands=("a", "b"), repeats=True),
    "sub": _pair("a - b"),
    "mul": Signature(meaning="a * b * ...", operands=("a", "b"), repeats=True),
    "div": _pair("a / b"),
    "neg": _unary("-x"),
    "pow": Signature(meaning="x to the power exponent", operands=("x", "exponent")),
    "minimum": _pair("the lesser of a and b"),
    "maximum": _pair("the greater of a and b"),
    "less": _pair("whether a < b"),
    "less_equal": _pair("whether a <= b"),
    "greater": _pair("whether a > b"),
    "greater_equal": _pair("whether a >= b"),
    "equal": _pair("whether a equals b"),
    "not_equal": _pair("whether a differs from b"),
    "logical_and": _pair("whether both of two masks hold"),
    "logical_or": _pair("whether one of two masks holds, or both"),
    "logical_not": _unary("whether a mask does not hold"),
    "matmul": _pair("matrix product a @ b"),
    "outer": _pair("all products of an element of the vector a and one of the vector b"),
    "einsum": Signature(
        meaning="the sum of products over the axes that the result lacks",
        operands=("x",),
        repeats=True,
        options=(
            Option(name="equation", kind="equation", required=True, meaning="letters of the axes, as in `bi,ij->bj`"),
        ),
    ),
    "mean": _unary("mean over axes", *REDUCTION),
    "sum": _unary("sum over axes", *REDUCTION),
    "max": _unary("greatest over axes", *REDUCTION),
    "min": _unary("least over axes", *REDUCTION),
    "sqrt": _unary("square root"),
    "square": _unary("x * x"),
    "exp": _unary("e to the power x"),
    "log": _unary("natural logarithm"),
    "abs": _unary("absolute value"),
    "sign": _unary("-1, 0 or 1"),
    "clip": _unary(
        "x clipped to min and max",
        _number("min", None, "the smallest value (default: no limit)"),
        _number("max", None, "the largest value (default: no limit)"),
    ),
    "norm": _unary("Euclidean norm over axes", *REDUCTION),
    "normalize": _unary("x divided by its Euclidean norm", _axis(-1)),
    "softmax": _unary("exp(x) divided by its sum", _axis(-1)),
    "log_softmax": _unary("the logarithm of the softmax", _axis(-1)),
    "logsumexp": _unary("log of the sum of exp(x) over axes", *REDUCTION),
    "cumsum": _unary("the sum of all elements up to each along an axis", _axis(-1)),
    "sort": Signature(
        meaning="the elements in rising order along an axis, and the indices that they had",
        operands=("x",),
        options=(
            _axis(-1),
            Option(name="descending", kind="bool", default=False, meaning="whether the greatest comes first"),
        ),
        results=2,
    ),
    "topk": Signature(
        meaning="the k greatest elements along an axis, in order, and their indices",
        operands=("x",),
        options=(
            Option(name="k", kind="int", required=True, minimum=1.0, meaning="how many elements"),
            _axis(-1),
            Option(name="largest", kind="bool", default=True, meaning="whether the greatest are taken, or the least"),
        ),
        results=2,
    ),
    "sigmoid": _unary("1 / (1 + exp(-x))"),
    "softplus": _unary("log(1 + exp(x)), without overflow"),
    "tanh": _unary("hyperbolic tangent"),
    "relu": _unary("max(0, x)"),
    "concat": Signature(meaning="join along an axis", operands=("x",), repeats=True, options=(_axis(1),)),
    "stack": Signature(meaning="join along a new axis", operands=("x",), repeats=True, options=(_axis(0),)),
    "split": _unary(
        "cut into several values along an axis",
        Option(name="sections", kind="sizes", required=True, meaning="a number of equal parts, or their sizes"),
        _axis(1),
    ),
    "split_rows": _unary(
        "cut into near-equal parts along the first axis, the larger ones first",
        Option(name="count", kind="int", required=True, minimum=1.0, meaning="how many parts"),
    ),
    "slice": _unary(
        "elements from start to stop along an axis",
        Option(name="start", kind="int", default=0, meaning="the first index"),
        Option(name="stop", kind="index", default=None, meaning="the index after the last (default: the end)"),
        _axis(1),
    ),
    "subscript": _unary(
        "x[...], as Python writes it",
        Option(name="at", kind="subscript", required=True, meaning="what stands between the brackets"),
    ),
    "gather": Signature(
        meaning="elements at the indices along an axis", operands=("x", "indices"), options=(_axis(1),)
    ),
    "reshape": _unary(
        "the same elements in another shape",
        Option(name="shape", kind="shape", required=True, meaning="all sizes, the batch included; one may be -1"),
    ),
    "expand": _unary(
        "axes of size 1 repeated",
        Option(name="shape", kind="shape", required=True, meaning="all sizes, the batch included; -1 keeps a size"),
    ),
    "permute": _unary(
        "axes in another order",
        Option(name="dims", kind="sizes", required=True, meaning="for each new axis, the old one"),
    ),
    "roll": _unary(
        "elements moved along an axis, the last of them to the start",
        Option(name="shifts", kind="int", required=True, meaning="by how many places"),
        _axis(-1),
    ),
    "pad": _unary(
        "elements added at both ends of the last axes",
        Option(
            name="pad",
            kind="sizes",
            required=True,
            minimum=0.0,
            meaning="how many before and after along the last axis, then along the one before it, and so on",
        ),
        Option(
            name="method",
            kind="choice",
            default="constant",
            choices=("constant", "reflect", "replicate"),
            meaning="whether they are a number, a mirror image without the edge, or the edge",
        ),
        _number("value", 0.0, "the number that is added"),
    ),
    "interpolate": _unary(
        "images of another height and width",
        Option(name="size", kind="pair", default=None, minimum=1.0, meaning="the new height and width"),
        Option(name="factor", kind="int", default=None, minimum=1.0, meaning="factor for height and width"),
        Option(
            name="method",
            kind="choice",
            default="nearest",
            choices=("nearest", "bilinear"),
            meaning="how new pixels are computed",
        ),
    ),
    "one_hot": _unary(
        "1 at the class, 0 elsewhere, along a new last axis",
        Option(name="classes", kind="int", required=True, minimum=1.0, meaning="how many classes"),
    ),
    "argmax": _unary("index of the largest element", _axis(1)),
    "where": Signature(meaning="a where the condition holds, else b", operands=("condition", "a", "b")),
    "lerp": Signature(meaning="a + weight * (b - a)", operands=("a", "b", "weight")),
    "stop": _unary("x, as a constant for every gradient"),
    "all_gather": _unary("the rows of the whole batch, of which each process has some"),
    "all_mean": _unary("mean over the rows of the whole batch, of which each process has some"),
    "either": Signature(meaning="the one of several values that there is in a step", operands=("x",), repeats=True),
}

METRICS: Mapping[str, Signature] = {
    "accuracy": Signature(
        meaning="fraction of samples whose largest score is at the target", operands=("scores", "target")
    ),
    "mean": _unary("mean of all elements"),
}

GRADIENTS = ("gradients",)
PER = Option(
    name="per",
    kind="choice",
    default="global",
    choices=("global", "parameter"),
    meaning="scope of the norm: the whole set, or the gradient of one parameter",
)
UNITS = Option(
    name="axis",
    kind="int",
    default=0,
    minimum=-1.0,
    maximum=0.0,
    meaning="the axis of the units: 0, or -1 for the last",
)

COUNTED = {"split": "sections", "split_rows": "count"}
"""Calls whose option says how many results they have, even one."""

TRANSFORMS: Mapping[str, Signature] = {
    "clip_norm": Signature(
        meaning="g * min(1, norm / (||g|| + eps))",
        operands=GRADIENTS,
        options=(
            Option(name="norm", kind="number", required=True, above=0.0, meaning="the largest norm of a set"),
            Option(name="eps", kind="number", default=0.0, minimum=0.0, meaning="added to the norm; torch's is 1e-6"),
            PER,
        ),
    ),
    "clip_value": Signature(
        meaning="every element clipped to -value and value",
        operands=GRADIENTS,
        options=(Option(name="value", kind="number", required=True, above=0.0, meaning="the largest absolute value"),),
    ),
    "clip_agc": Signature(
        meaning="every unit's gradient norm at most clipping * max(||weights||, eps)",
        operands=GRADIENTS,
        options=(
            _positive("clipping", 0.01, "the largest gradient norm, as a multiple of the norm of the weights"),
            Option(
                name="eps", kind="number", default=0.001, minimum=0.0, meaning="lower bound on the norm of the weights"
            ),
            UNITS,
        ),
    ),
    "scale": Signature(
        meaning="factor * g", operands=GRADIENTS, options=(_number("factor", None, "the factor", required=True),)
    ),
    "noise": Signature(
        meaning="g plus normally distributed numbers",
        operands=GRADIENTS,
        options=(Option(name="std", kind="number", required=True, minimum=0.0, meaning="their standard deviation"),),
    ),
    "centralize": Signature(
        meaning="g minus its mean over every unit, for tensors with more than one axis",
        operands=GRADIENTS,
        options=(UNITS,),
    ),
    "normalize": Signature(meaning="g divided by its norm", operands=GRADIENTS, options=(PER,)),
    "project": Signature(meaning="a - min(0, a.b) / b.b * b over the whole set", operands=("a", "b")),
    "pcgrad": Signature(
        meaning="the sum of all sets, each projected against the others where their inner product is negative",
        operands=("a", "b"),
        repeats=True,
        options=(
            Option(
                name="order",
                kind="choice",
                default="random",
                choices=("random", "listed"),
                meaning="the order in which a set is projected against the others",
            ),
        ),
    ),
}

RANDOMS: Mapping[str, Signature] = {
    "normal": Signature(
        meaning="the normal distribution",
        options=(
            _number("mean", 0.0, "its mean"),
            Option(name="std", kind="number", default=1.0, minimum=0.0, meaning="its standard deviation"),
        ),
    ),
    "uniform": Signature(
        meaning="uniform between low and high",
        options=(_number("low", 0.0, "the least value"), _number("high", 1.0, "the limit above")),
    ),
    "bernoulli": Signature(
        meaning="1 with probability p, else 0",
        options=(Option(name="p", kind="number", default=0.5, minimum=0.0, maximum=1.0, meaning="probability of 1"),),
    ),
    "permutation": Signature(meaning="the numbers from 0 to n - 1 in random order; its shape is [n]"),
    "randint": Signature(
        meaning="whole numbers from low to high - 1",
        options=(
            Option(name="low", kind="int", default=0, meaning="the least value"),
            Option(name="high", kind="int", required=True, meaning="the limit above"),
        ),
    ),
}

FUNCTIONS: Mapping[Family, Mapping[str, Signature]] = {
    "loss": LOSSES,
    "call": CALLS,
    "metric": METRICS,
    "transform": TRANSFORMS,
    "random": RANDOMS,
}

OTHER_NAMES: Mapping[str, str] = {"dim": "axis", "keepdim": "keepdims", "mode": "method"}
"""What PyTorch calls options of calls and losses; `render` and the docs use the names of the tables."""


def find_other_names(signature: Signature) -> Mapping[str, str]:
    """Return the aliases of a function's options: alias -> name."""
    names = {option.name for option in signature.options}
    return {other: name for other, name in OTHER_NAMES.items() if name in names}


ON_GRADIENTS = ("add", "sub", "mul", "lerp")
"""Calls that also work on gradient sets over the same models."""

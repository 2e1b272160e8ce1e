"""The functions of the library by their formulas: calls and losses, over any kind of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.oracle import users
from tests.oracle.numbers import Array, Numbers
from tests.oracle.optimizers import DegenerateError

Function = Callable[..., Array]


def beyond(axis: int) -> int:
    """Return an axis of a value as one of its array, where the copies come first."""
    return axis + 1 if axis >= 0 else axis


def all_axes(x: Array, axis: int | Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the axes of an array that ``axis`` means: one, several, or all but that of the copies."""
    if axis is None:
        return tuple(range(1, x.ndim))
    listed = [axis] if isinstance(axis, int) else axis
    return tuple(sorted(beyond(one) % x.ndim for one in listed))


# ------------------------------------------------------------ elements


def relu(n: Numbers, x: Array) -> Array:
    """Return max(0, x)."""
    return n.where(n.real(x) <= 0, 0.0, x)


def sigmoid(n: Numbers, x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), by the hyperbolic tangent."""
    return (n.apply("tanh", x / 2) + 1) / 2


def absolute(n: Numbers, x: Array) -> Array:
    """Return |x|."""
    return n.where(n.real(x) > 0, x, n.where(n.real(x) < 0, -x, x * 0))


def sign(n: Numbers, x: Array) -> Array:
    """Return -1, 0 or 1; no derivative."""
    one = x * 0 + 1
    return n.where(n.real(x) > 0, one, n.where(n.real(x) < 0, -one, x * 0))


def clip(n: Numbers, x: Array, min: float | None = None, max: float | None = None) -> Array:
    """Return x kept between limits."""
    if min is not None:
        x = n.where(n.real(x) < min, float(min), x)
    return x if max is None else n.where(n.real(x) > max, float(max), x)


def softplus(n: Numbers, x: Array) -> Array:
    """Return log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))."""
    return relu(n, x) + n.apply("log", 1 + n.apply("exp", -absolute(n, x)))


# ------------------------------------------------------------ axes


def log_softmax(n: Numbers, x: Array, axis: int) -> Array:
    """Return log(exp(x) / sum exp(x)) along an axis of the array; what is subtracted first is a constant."""
    shifted = x - n.pick(x, n.argmax(x, axis), axis)
    return shifted - n.apply("log", n.sum(n.apply("exp", shifted), (axis % x.ndim,), keep=True))


def softmax(n: Numbers, x: Array, axis: int = -1) -> Array:
    """Return exp(x) / sum exp(x)."""
    return n.apply("exp", log_softmax(n, x, beyond(axis)))


def length(n: Numbers, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
    """Return the square root of the sum of squares."""
    return n.apply("sqrt", n.sum(x * x, axes, keep=keep))


def normalize(n: Numbers, x: Array, axis: int = -1) -> Array:
    """Return x / max(||x||, 1e-12)."""
    found = length(n, x, (beyond(axis) % x.ndim,), keep=True)
    if (n.real(found) < 1e-12).any():
        raise DegenerateError("normalize enlarges what is zero but for rounding")
    return x / n.where(n.real(found) > 1e-12, found, found * 0 + 1e-12)


def greatest(n: Numbers, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """Return the greatest element over axes."""
    axes = all_axes(x, axis)
    kept = [one for one in range(x.ndim) if one not in axes]
    moved = n.permute(x, [*kept, *axes]).reshape((*[x.shape[one] for one in kept], -1))
    found = n.pick(moved, n.argmax(moved, -1), -1)[..., 0]
    return found.reshape([1 if one in axes else x.shape[one] for one in range(x.ndim)]) if keepdims else found


def least(n: Numbers, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """Return the least element over axes."""
    return -greatest(n, -x, axis, keepdims)


def split(n: Numbers, x: Array, sections: int | Sequence[int] = 1, axis: int = 1) -> list[Array]:
    """Return equal parts, or parts of given sizes, along an axis."""
    axis = beyond(axis) % x.ndim
    sizes = [x.shape[axis] // sections] * sections if isinstance(sections, int) else sections
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [_cut(x, end - size, end, axis) for size, end in zip(sizes, ends, strict=True)]


def split_rows(n: Numbers, x: Array, count: int = 1) -> list[Array]:
    """Return parts of the rows, of which the first have one more where they cannot be equal."""
    rows, axis = x.shape[beyond(0)], beyond(0)
    ends = [sum(rows // count + (each < rows % count) for each in range(number + 1)) for number in range(count)]
    return [_cut(x, start, end, axis) for start, end in zip([0, *ends], ends, strict=False)]


def _cut(x: Array, start: int, stop: int | None, axis: int) -> Array:
    return x[(*[slice(None)] * axis, slice(start, stop))]


def matmul(n: Numbers, a: Array, b: Array) -> Array:
    """Return the product of two matrices."""
    return n.einsum("pij,pjk->pik", a, b)


def product(arrays: Sequence[Array]) -> Array:
    """Return the product of arrays."""
    found = arrays[0]
    for array in arrays[1:]:
        found = found * array
    return found


def total(arrays: Sequence[Array]) -> Array:
    """Return the sum of arrays."""
    return sum(arrays[1:], arrays[0])


def minimum(n: Numbers, a: Array, b: Array) -> Array:
    """Return the lesser of two numbers; where they are equal, their mean."""
    a, b = n.align(a, b)
    return n.where(n.real(a) < n.real(b), a, n.where(n.real(b) < n.real(a), b, (a + b) / 2))


def compare(compared: Callable[[Array, Array], Array]) -> Function:
    """Return a comparison; no derivative."""
    return lambda n, a, b: compared(*(n.real(one) for one in n.align(a, b)))


def combine(combined: Callable[[Array, Array], Array]) -> Function:
    """Return a combination of two masks, which may be numbers that are 0 where they do not hold."""
    return lambda n, a, b: combined(*(n.real(one) != 0 for one in n.align(a, b)))


def subscript(n: Numbers, x: Array, at: str | int = ":") -> Array:
    """Return x[at], read by Python itself."""
    places = eval(f"np.index_exp[{at}]", {"np": np})
    return x[(slice(None), *places)]


def where(n: Numbers, condition: Array, a: Array, b: Array) -> Array:
    """Return a where the condition holds, else b."""
    return n.where(*n.align(condition, a, b))


def concat(n: Numbers, *x: Array, axis: int = 1) -> Array:
    """Return values joined along an axis."""
    return n.join(x, beyond(axis) % x[0].ndim)


def stack(n: Numbers, *x: Array, axis: int = 0) -> Array:
    """Return values joined along a new axis."""
    axis = beyond(axis) % (x[0].ndim + 1)
    return n.join([one.reshape((*one.shape[:axis], 1, *one.shape[axis:])) for one in x], axis)


def logsumexp(n: Numbers, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Array:
    """Return log(sum(exp(x))) over axes."""
    return n.apply("log", n.sum(n.apply("exp", x), all_axes(x, axis), keep=keepdims))


CALLS: Mapping[str, Function] = {
    "add": lambda n, *x: total(n.align(*x)),
    "sub": lambda n, a, b: _minus(*n.align(a, b)),
    "mul": lambda n, *x: product(n.align(*x)),
    "div": lambda n, a, b: _over(*n.align(a, b)),
    "neg": lambda n, x: -x,
    "pow": lambda n, x, exponent: operator.pow(*n.align(x, exponent)),
    "minimum": minimum,
    "maximum": lambda n, a, b: -minimum(n, -a, -b),
    "less": compare(operator.lt),
    "less_equal": compare(operator.le),
    "greater": compare(operator.gt),
    "greater_equal": compare(operator.ge),
    "equal": compare(operator.eq),
    "not_equal": compare(operator.ne),
    "logical_and": combine(operator.and_),
    "logical_or": combine(operator.or_),
    "logical_not": lambda n, x: n.real(x) == 0,
    "matmul": matmul,
    "mean": lambda n, x, axis=None, keepdims=False: n.mean(x, all_axes(x, axis), keep=keepdims),
    "sum": lambda n, x, axis=None, keepdims=False: n.sum(x, all_axes(x, axis), keep=keepdims),
    "max": greatest,
    "min": least,
    "sqrt": lambda n, x: n.apply("sqrt", x),
    "square": lambda n, x: x * x,
    "exp": lambda n, x: n.apply("exp", x),
    "log": lambda n, x: n.apply("log", x),
    "abs": absolute,
    "sign": sign,
    "clip": clip,
    "norm": lambda n, x, axis=None: length(n, x, all_axes(x, axis)),
    "normalize": normalize,
    "softmax": softmax,
    "logsumexp": logsumexp,
    "sigmoid": sigmoid,
    "tanh": lambda n, x: n.apply("tanh", x),
    "relu": relu,
    "concat": concat,
    "stack": stack,
    "split": split,
    "split_rows": split_rows,
    "slice": lambda n, x, start=0, stop=None, axis=1: _cut(x, start, stop, beyond(axis) % x.ndim),
    "subscript": subscript,
    "gather": lambda n, x, indices, axis=1: n.pick(x, indices, beyond(axis)),
    "reshape": lambda n, x, shape=(): x.reshape(
        (x.shape[0], *(x.shape[1] if one == "batch" else one for one in shape))
    ),
    "permute": lambda n, x, dims=(): n.permute(x, [0, *[one + 1 for one in dims]]),
    "where": where,
    "lerp": lambda n, a, b, weight: _mix(*n.align(a, b, weight)),
    "stop": lambda n, x: x,
    "either": lambda n, x: x,
    **users.CALLS,
}


def _minus(a: Array, b: Array) -> Array:
    return a - b


def _over(a: Array, b: Array) -> Array:
    return a / b


def _mix(a: Array, b: Array, weight: Array) -> Array:
    return a + weight * (b - a)


# ------------------------------------------------------------ losses, element by element: values, and how many count


def _logits(n: Numbers, x: Array, t: Array) -> Array:
    size = n.where(n.real(x) > 0, x, -x)  # not `absolute`, whose slope at 0 is 0: the sum has none of its kinks
    return relu(n, x) - t * x + n.apply("log", 1 + n.apply("exp", -size))


def _bce(n: Numbers, p: Array, t: Array) -> Array:
    return -(t * clip(n, n.apply("log", p), min=-100.0) + (1 - t) * clip(n, n.apply("log", 1 - p), min=-100.0))


def _huber(n: Numbers, x: Array, y: Array, delta: float = 1.0) -> Array:
    d = absolute(n, x - y)
    return n.where(n.real(d) <= delta, d * d / 2, delta * (d - delta / 2))


def _cross_entropy(n: Numbers, x: Array, t: Array, axis: int = 1, label_smoothing: float = 0.0) -> Array:
    axis = beyond(axis) % x.ndim
    logs = log_softmax(n, x, axis)
    even = -n.mean(logs, (axis,))
    if t.ndim == x.ndim:
        told = -n.sum(t * logs, (axis,))
    else:
        told = -n.pick(logs, t.reshape((*t.shape[:axis], 1, *t.shape[axis:])), axis).reshape(even.shape)
    return (1 - label_smoothing) * told + label_smoothing * even


def _nll(n: Numbers, x: Array, t: Array) -> Array:
    return -n.pick(x, t.reshape((*t.shape[:2], 1, *t.shape[2:])), 2).reshape((-1, *t.shape[1:]))


def _kl_div(n: Numbers, student: Array, teacher: Array, temperature: float = 1.0) -> Array:
    s, t = (log_softmax(n, x / temperature, 2) for x in (student, teacher))
    return n.sum(n.apply("exp", t) * (t - s), (2,))


def _cosine(n: Numbers, a: Array, b: Array) -> Array:
    last = (a.ndim - 1,)
    return 1 - n.sum(a * b, last) / (length(n, a, last) * length(n, b, last))


def _nt_xent(n: Numbers, a: Array, b: Array, temperature: float = 0.5) -> Array:
    rows = normalize(n, n.join([a, b], 1))
    alike = n.apply("exp", n.einsum("pid,pjd->pij", rows, rows) / temperature)
    count = rows.shape[1]
    listed = []
    for i in range(count):
        others = [alike[:, i, k] for k in range(count) if k != i]
        partner = alike[:, i, (i + count // 2) % count]
        listed.append(n.apply("log", total(others)) - n.apply("log", partner))
    return stack(n, *listed)


LOSSES: Mapping[str, Function] = {
    "mse": lambda n, x, y: (x - y) * (x - y),
    "l1": lambda n, x, y: absolute(n, x - y),
    "huber": _huber,
    "bce": _bce,
    "bce_with_logits": _logits,
    "cross_entropy": _cross_entropy,
    "nll": _nll,
    "kl_div": _kl_div,
    "hinge": lambda n, score, y: relu(n, 1 - y * score),
    "cosine": _cosine,
    "nt_xent": _nt_xent,
    "wasserstein": lambda n, score, sign=1.0: sign * score,
}
"""The elements of every loss."""


def is_counted(name: str, reduction: str | None, options: Mapping[str, object]) -> bool:
    """Return whether a loss has its own count."""
    return reduction in (None, "mean") and (name in users.COUNTED or options.get("ignore_index") is not None)


def counted(n: Numbers, name: str, operands: Sequence[Array], options: Mapping[str, object]) -> tuple[Array, int]:
    """Return the sum of a loss over what it counts, and how much that is."""
    if name in users.COUNTED:
        return users.COUNTED[name](n, *operands, **options)
    if options.get("ignore_index") is None:
        elements = loss(n, name, operands, "none", options)
        return n.sum(elements, all_axes(elements)), math.prod(elements.shape[1:])
    scores, target = operands
    rest = {key: value for key, value in options.items() if key != "ignore_index"}
    labels = np.asarray(target)
    keep = labels[0] != options["ignore_index"]
    elements = LOSSES[name](n, scores, n.lift(np.where(keep, labels, 0)), **rest)
    return n.sum(elements * n.lift(keep[None].astype(np.float64)), all_axes(elements)), int(keep.sum())


def nothing(n: Numbers, total: Array) -> Array:
    """Return the mean of a loss over nothing: no number, and its slope is zero."""
    return n.where(n.real(total) != n.real(total), total, math.nan)


def require_equal(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ValueError for operands of a loss that would broadcast; what has no axes is a number."""
    if len({shape for shape in shapes if shape}) > 1:
        raise ValueError(f"{name} compares {shapes[0]} with {shapes[1]}")


def loss(n: Numbers, name: str, operands: Sequence[Array], reduction: str, options: Mapping[str, object]) -> Array:
    """Return a loss of operands; a number among them stands for a tensor filled with it. kl_div's mean is over rows."""
    if name in users.LOSSES:
        return users.LOSSES[name](n, *operands, **options)
    if name not in ("cross_entropy", "nll"):
        require_equal(name, [each.shape[1:] for each in operands])
        operands = n.align(*operands)
    elements = LOSSES[name](n, *operands, **options)
    if reduction == "none":
        return elements
    whole = n.sum(elements, all_axes(elements))
    count = elements.shape[1] if name == "kl_div" else math.prod(elements.shape[1:])
    return whole if reduction == "sum" else whole / count

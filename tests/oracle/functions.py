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


def norm(n: Numbers, x: Array, axes: tuple[int, ...], *, keep: bool = False) -> Array:
    """Return a length, which has no gradient at zero; frameworks give it one."""
    found = length(n, x, axes, keep=keep)
    if (n.real(found) < 1e-12).any():
        raise DegenerateError("the norm of a tensor that is zero up to rounding has no gradient")
    return found


def normalize(n: Numbers, x: Array, axis: int = -1) -> Array:
    """Return x / max(||x||, 1e-12)."""
    found = length(n, x, (beyond(axis) % x.ndim,), keep=True)
    if (n.real(found) < 1e-12).any():
        raise DegenerateError("normalize scales up a tensor that is zero up to rounding")
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


def running(n: Numbers, x: Array, axis: int = -1) -> Array:
    """Return the sum of all elements up to each along an axis: the product with a triangle of ones."""
    axis = beyond(axis) % x.ndim
    return apply_matrix(n, x, np.tri(x.shape[axis]), axis)


def apply_matrix(n: Numbers, x: Array, matrix: np.ndarray, axis: int) -> Array:
    """Return the products of a matrix and all vectors along an axis of the array."""
    order = [*(one for one in range(x.ndim) if one != axis), axis]
    moved = n.einsum("p...i,poi->p...o", n.permute(x, order), n.lift(matrix[None]))
    return n.permute(moved, [order.index(one) for one in range(x.ndim)])


def sort(n: Numbers, x: Array, axis: int = -1, descending: bool = False) -> list[Array]:
    """Return the elements in order along an axis, and where each was; equal ones stay as they were."""
    axis = beyond(axis) % x.ndim
    order = n.argsort(-x if descending else x, axis)
    return [n.pick(x, order, axis), order]


def topk(n: Numbers, x: Array, k: int = 1, axis: int = -1, largest: bool = True) -> list[Array]:
    """Return the first elements of those in order, and where each was."""
    return [_cut(each, 0, k, beyond(axis) % x.ndim) for each in sort(n, x, axis, largest)]


def einsum(n: Numbers, *factors: Array, equation: str = "") -> Array:
    """Return the sum of products, factor by factor; what is summed is summed at the end."""
    written, result = equation.replace(" ", "").split("->")
    axes, found = "p", n.lift(np.ones(1))
    for letters, factor in zip(written.split(","), factors, strict=True):
        both = axes + "".join(each for each in letters if each not in axes)
        axes, found = both, n.einsum(f"{axes},p{letters}->{both}", found, factor)
    gone = tuple(index for index, each in enumerate(axes) if each not in f"p{result}")
    left = [each for each in axes if each in f"p{result}"]
    return n.permute(n.sum(found, gone) if gone else found, [left.index(each) for each in f"p{result}"])


def roll(n: Numbers, x: Array, shifts: int = 0, axis: int = -1) -> Array:
    """Return the elements moved along an axis: the last of them come first."""
    axis = beyond(axis) % x.ndim
    at = -shifts % x.shape[axis]
    return n.join([_cut(x, at, None, axis), _cut(x, 0, at, axis)], axis)


def surround(n: Numbers, x: Array, pad: Sequence[int] = (), method: str = "constant", value: float = 0.0) -> Array:
    """Return x with more elements at both ends of its last axes: a number, or what NumPy takes for it."""
    for index in range(len(pad) // 2):
        axis, size = x.ndim - 1 - index, x.shape[-1 - index]
        both = pad[2 * index : 2 * index + 2]
        if method == "constant":
            ends = [n.lift(np.full((1, *x.shape[1:axis], width, *x.shape[axis + 1 :]), float(value))) for width in both]
            x = n.join([ends[0], x, ends[1]], axis)
        else:
            places = np.pad(np.arange(size), both, "edge" if method == "replicate" else method)
            x = apply_matrix(n, x, np.eye(size)[places], axis)
    return x


def resample(n: Numbers, x: Array, size: object = None, factor: int | None = None, method: str = "nearest") -> Array:
    """Return images of another height and width; what each pixel is made of is in two small matrices."""
    for axis in (3, 4):
        old = x.shape[axis]
        new = old * factor if factor else (size if isinstance(size, int) else size[axis - 3])
        x = apply_matrix(n, x, weigh_nearest(old, new) if method == "nearest" else weigh_linear(old, new), axis)
    return x


def weigh_nearest(old: int, new: int) -> np.ndarray:
    """Return the matrix that takes for element k the one at k old / new, rounded down."""
    return np.eye(old)[np.arange(new) * old // new]


def weigh_linear(old: int, new: int) -> np.ndarray:
    """Return the matrix of linear interpolation: element k stands at (k + 1/2) old / new - 1/2, within the ends."""
    found = np.zeros((new, old))
    for k in range(new):
        place = min(max((k + 0.5) * old / new - 0.5, 0.0), old - 1.0)
        low = min(int(place), old - 2) if old > 1 else 0
        found[k, low] += 1 - (place - low)
        found[k, min(low + 1, old - 1)] += place - low
    return found


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
    "outer": lambda n, a, b: n.einsum("pi,pj->pij", a, b),
    "einsum": einsum,
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
    "norm": lambda n, x, axis=None, keepdims=False: norm(n, x, all_axes(x, axis), keep=keepdims),
    "normalize": normalize,
    "softmax": softmax,
    "log_softmax": lambda n, x, axis=-1: log_softmax(n, x, beyond(axis)),
    "logsumexp": logsumexp,
    "cumsum": running,
    "sort": sort,
    "topk": topk,
    "sigmoid": sigmoid,
    "softplus": softplus,
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
    "expand": lambda n, x, shape=(): n.spread(
        x, (x.shape[0], *(old if one in (-1, "batch") else one for old, one in zip(x.shape[1:], shape, strict=True)))
    ),
    "permute": lambda n, x, dims=(): n.permute(x, [0, *[one + 1 for one in dims]]),
    "roll": roll,
    "pad": surround,
    "interpolate": resample,
    "where": where,
    "lerp": lambda n, a, b, weight: _mix(*n.align(a, b, weight)),
    "stop": lambda n, x: x,
    "all_gather": lambda n, x: x,  # one process has all rows
    "all_mean": lambda n, x: n.mean(x, (1,), keep=False),
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


def _focal(n: Numbers, x: Array, t: Array, alpha: float = 0.25, gamma: float = 2.0) -> Array:
    p = sigmoid(n, x)
    right = t * p + (1 - t) * (1 - p)
    return (alpha * t + (1 - alpha) * (1 - t)) * n.apply("exp", gamma * n.apply("log", 1 - right)) * _logits(n, x, t)


def _dice(n: Numbers, p: Array, t: Array, axis: int | Sequence[int] | None = None, smooth: float = 1e-7) -> Array:
    axes = tuple(range(2, p.ndim)) if axis is None else all_axes(p, axis)
    return 1 - (2 * n.sum(p * t, axes) + smooth) / (n.sum(p, axes) + n.sum(t, axes) + smooth)


def _gaussian(n: Numbers, m: Array, t: Array, v: Array, full: bool = False, eps: float = 1e-6) -> Array:
    if (n.real(v) < eps).any():
        raise DegenerateError("a variance that is held up has the gradient of another function")
    return (n.apply("log", v) + (m - t) * (m - t) / v + (math.log(2 * math.pi) if full else 0.0)) / 2


def _poisson(n: Numbers, x: Array, t: Array, log_input: bool = True, full: bool = False, eps: float = 1e-8) -> Array:
    found = n.apply("exp", x) - t * x if log_input else x - t * n.apply("log", x + eps)
    large = n.where(n.real(t) > 1, t, t * 0 + 1)
    stirling = large * n.apply("log", large) - large + n.apply("log", 2 * math.pi * large) / 2
    return found + n.where(n.real(t) > 1, stirling, stirling * 0) if full else found


def _triplet(n: Numbers, a: Array, p: Array, q: Array, margin: float = 1.0, swap: bool = False) -> Array:
    last = (a.ndim - 1,)
    near, far, between = (length(n, one - other + 1e-6, last) for one, other in ((a, p), (a, q), (p, q)))
    return relu(n, near - (minimum(n, far, between) if swap else far) + margin)


def _ctc(
    n: Numbers, x: Array, target: Array, times: Array, lengths: Array, blank: int = 0, zero_infinity: bool = False
) -> Array:
    """Return -log of the probability of all alignments, sample by sample: the sum over all ways, step by step."""
    chances, found = softmax(n, x), []
    for row in range(x.shape[1]):
        classes = [int(each) for each in np.asarray(target)[0, row, : int(np.asarray(lengths)[0, row])]]
        path = [blank, *(each for one in classes for each in (one, blank))]
        held = [chances[:, row, 0, 0] * 0 + (place == 0) for place in range(len(path))]
        for time in range(int(np.asarray(times)[0, row])):
            skips = [place > 1 and path[place] not in (blank, path[place - 2]) for place in range(len(path))]
            sources = [[place, *[place - 1] * (place > 0), *[place - 2] * skips[place]] for place in range(len(path))]
            sums = [total([held[one] for one in each]) for each in sources]
            held = [each * chances[:, row, time, path[place]] for place, each in enumerate(sums)]
        ends = total(held[-2:])
        if (n.real(ends) == 0).any():
            raise DegenerateError("a target without an alignment has no gradient")
        found.append(-n.apply("log", ends))
    return stack(n, *found)


def _super_loss(n: Numbers, x: Array, threshold: float | None = None, regularization: float = 1.0) -> Array:
    """Return the losses weighed by how easy they are; the weights and the threshold are constants."""
    losses = np.asarray(n.settled(x))
    limit = losses.mean(axis=tuple(range(1, losses.ndim)), keepdims=True) if threshold is None else threshold
    beyond_limit = (losses - limit) / regularization
    weights = np.exp(-lambert(np.maximum(-2 / math.e, beyond_limit) / 2))
    return (x - n.lift(limit + 0 * losses)) * n.lift(weights) + n.lift(regularization * np.log(weights) ** 2)


def lambert(z: np.ndarray) -> np.ndarray:
    """Return the w from -1 up with w e^w = z, by halving: w e^w rises with w there."""
    low, high = np.full(z.shape, -1.0), np.maximum(z, 1.0)
    for _ in range(80):
        middle = (low + high) / 2
        is_low = middle * np.exp(middle) < z
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return low


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
    "focal": _focal,
    "dice": _dice,
    "gaussian_nll": _gaussian,
    "poisson_nll": _poisson,
    "triplet_margin": _triplet,
    "ctc": _ctc,
    "wasserstein": lambda n, score, sign=1.0: sign * score,
    "super_loss": _super_loss,
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
    """Return a loss of operands; a number among them stands for a tensor filled with it. kl_div's mean is over rows.

    ctc's mean is that of losses by the lengths of their targets.
    """
    if name in users.LOSSES:
        return users.LOSSES[name](n, *operands, **options)
    if name not in ("cross_entropy", "nll", "ctc"):
        require_equal(name, [each.shape[1:] for each in operands])
        operands = n.align(*operands)
    elements = LOSSES[name](n, *operands, **options)
    if reduction == "none":
        return elements
    if name == "ctc" and reduction == "mean":
        elements = elements / n.lift(np.maximum(np.asarray(operands[3]), 1).astype(np.float64))
    whole = n.sum(elements, all_axes(elements))
    count = elements.shape[1] if name == "kl_div" else math.prod(elements.shape[1:])
    return whole if reduction == "sum" else whole / count

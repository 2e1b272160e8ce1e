"""Built-in layers by their formulas: what they return, and what BatchNorm makes of its running statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphspec.declare.layers import Layer
from tests.oracle.functions import greatest, relu, sigmoid, softmax, surround, total, weigh_linear, weigh_nearest
from tests.oracle.numbers import Array, Numbers

Tensors = Mapping[str, Array]
Activation = Callable[..., Array]


def gelu(n: Numbers, x: Array) -> Array:
    """Return x times the normal distribution function of x."""
    return x * (1 + n.erf(x / math.sqrt(2))) / 2


def elu(n: Numbers, x: Array, alpha: float = 1.0) -> Array:
    """Return x where it is positive, else alpha (exp(x) - 1)."""
    below = n.where(n.real(x) > 0, 0 * x, x)  # not by `relu`, whose slope at 0 is 0: here it is alpha
    return n.where(n.real(x) > 0, x, alpha * (n.apply("exp", below) - 1))


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": relu,
    "leaky_relu": lambda n, x, slope=0.01: n.where(n.real(x) > 0, x, slope * x),
    "gelu": gelu,
    "silu": lambda n, x: x * sigmoid(n, x),
    "elu": elu,
    "tanh": lambda n, x: n.apply("tanh", x),
    "sigmoid": sigmoid,
    "softmax": softmax,
    "identity": lambda n, x: x,
    "flatten": lambda n, x: x.reshape((*x.shape[:2], -1)),
    "reshape": lambda n, x, shape=(): x.reshape((*x.shape[:2], *shape)),
    "global_avg_pool": lambda n, x: n.mean(x, (3, 4)),
}
"""Layers without parameters."""


@dataclass(kw_only=True)
class Call:
    """One call of a ``layers:`` model: what it is given beside its input, and what it leaves behind."""

    numbers: Numbers
    parameters: Tensors
    buffers: Tensors
    train: bool
    mask: Callable[[tuple[int, ...], float], np.ndarray]
    """Ones where dropout keeps an element; every call draws the next numbers."""
    written: dict[str, Array] = field(default_factory=dict)
    """Running statistics after the call."""
    taps: dict[str, Array] = field(default_factory=dict)
    """What every layer returned, by its path."""
    shifts: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    """What is added to the results of layers that are targets."""

    def run(self, layers: Sequence[Layer], x: Array, path: str = "") -> Array:
        """Return what the layers make of x."""
        for index, layer in enumerate(layers):
            name = f"{path}{index}"
            x = sum(self.shifts.get(name, ()), self._run(layer, x, name))
            self.taps[name] = x
        return x

    def _run(self, layer: Layer, x: Array, name: str) -> Array:
        if layer.kind == "residual":
            return x + self.run(layer.layers, x, f"{name}.")
        if layer.kind == "spectral_norm":
            return self._spectral_norm(layer, x, name)
        options = read_options(layer)
        if layer.kind in ACTIVATIONS:
            return ACTIVATIONS[layer.kind](self.numbers, x, **options)
        return getattr(self, f"_{layer.kind}")(x, name, **options)

    def _get(self, name: str, part: str) -> Array | None:
        return self.parameters.get(f"{name}.{part}")

    def _scale(self, x: Array, name: str, axis: int) -> Array:
        """Return x times the layer's weight plus its bias, both along one axis."""
        for part in ("weight", "bias"):
            found = self._get(name, part)
            if found is not None:
                shape = [found.shape[0], *[1] * (x.ndim - 1)]
                shape[axis] = found.shape[1]
                x = x * found.reshape(shape) if part == "weight" else x + found.reshape(shape)
        return x

    def _bias(self, x: Array, name: str, axis: int) -> Array:
        found = self._get(name, "bias")
        if found is None:
            return x
        shape = [found.shape[0], *[1] * (x.ndim - 1)]
        shape[axis] = found.shape[1]
        return x + found.reshape(shape)

    def _linear(self, x: Array, name: str, out: int, bias: bool = True) -> Array:
        weight = self._get(name, "weight")
        formula = "pbi,poi->pbo" if x.ndim == 3 else "pbki,poi->pbko"
        return self._bias(self.numbers.einsum(formula, x, weight), name, x.ndim - 1)

    def _conv1d(
        self,
        x: Array,
        name: str,
        out: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> Array:
        """Return the sum over taps of what each sees, along the last axis, times its weight."""
        n, weight = self.numbers, self._get(name, "weight")
        x, parts = surround(n, x, (padding, padding)), []
        last = (x.shape[3] - dilation * (kernel - 1) - 1) // stride * stride
        inner, outer = x.shape[2] // groups, out // groups
        for g in range(groups):
            given = x[:, :, g * inner : (g + 1) * inner]
            taps = [given[..., k * dilation : k * dilation + last + 1 : stride] for k in range(kernel)]
            mine = weight[:, g * outer : (g + 1) * outer]
            seen = [n.einsum("pbcl,poc->pbol", tap, mine[..., k]) for k, tap in enumerate(taps)]
            parts.append(total(seen))
        return self._bias(n.join(parts, 2), name, 2)

    def _conv2d(
        self,
        x: Array,
        name: str,
        out: int,
        kernel: object,
        stride: object = 1,
        padding: object = 0,
        dilation: object = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> Array:
        n, weight = self.numbers, self._get(name, "weight")
        x, parts = pad(n, x, pair(padding)), []
        for g in range(groups):
            inner, outer = x.shape[2] // groups, out // groups
            parts.append(
                _correlate(
                    n,
                    x[:, :, g * inner : (g + 1) * inner],
                    weight[:, g * outer : (g + 1) * outer],
                    pair(stride),
                    pair(dilation),
                )
            )
        return self._bias(n.join(parts, 2), name, 2)

    def _conv_transpose2d(
        self,
        x: Array,
        name: str,
        out: int,
        kernel: object,
        stride: object = 1,
        padding: object = 0,
        output_padding: object = 0,
        bias: bool = True,
    ) -> Array:
        """Add, for every element of x, its multiple of the kernel at its place, and cut the margin off."""
        n, weight, (down, right), cut = self.numbers, self._get(name, "weight"), pair(stride), pair(padding)
        high, wide, more = weight.shape[3], weight.shape[4], pair(output_padding)
        sizes = [(x.shape[3] - 1) * down + high + more[0], (x.shape[4] - 1) * right + wide + more[1]]
        parts = []
        for i in range(x.shape[3]):
            for j in range(x.shape[4]):
                patch = n.einsum("pbc,pcohw->pbohw", x[:, :, :, i, j], weight)
                top, left = i * down, j * right
                parts.append(_surround(n, patch, (top, sizes[0] - top - high, left, sizes[1] - left - wide)))
        whole = sum(parts[1:], parts[0])
        ends = [sizes[axis] - cut[axis] for axis in range(2)]
        return self._bias(whole[:, :, :, cut[0] : ends[0], cut[1] : ends[1]], name, 2)

    def _upsample(self, x: Array, name: str, factor: int, mode: str = "nearest") -> Array:
        """Return every row and column made of those it stands between: all weights are in two small matrices."""
        weigh = weigh_nearest if mode == "nearest" else weigh_linear
        for axis, formula in ((3, "pbchw,pkh->pbckw"), (4, "pbchw,pkw->pbchk")):
            x = self.numbers.einsum(formula, x, self.numbers.lift(weigh(x.shape[axis], factor * x.shape[axis])[None]))
        return x

    def _batch_norm(self, x: Array, name: str, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> Array:
        n, shape = self.numbers, [1, 1, -1, *[1] * (x.ndim - 3)]
        if not self.train:
            mean, variance = (self.buffers[f"{name}.running_{part}"].reshape(shape) for part in ("mean", "var"))
        else:
            axes = tuple(axis for axis in range(1, x.ndim) if axis != 2)
            mean = n.mean(x, axes, keep=True)
            variance = n.mean((x - mean) * (x - mean), axes, keep=True)
            count = math.prod(x.shape[axis] for axis in axes)
            self._remember(name, momentum, mean.reshape((-1, x.shape[2])), variance.reshape((-1, x.shape[2])), count)
        return self._scale((x - mean) / n.apply("sqrt", variance + eps), name, 2)

    def _remember(self, name: str, momentum: float, mean: Array, variance: Array, count: int) -> None:
        """Note the running statistics after a batch: its variance counts as that of count - 1."""
        new = {"running_mean": mean, "running_var": variance * count / (count - 1)}
        for part, batch in new.items():
            old = self.buffers[f"{name}.{part}"]
            self.written[f"{name}.{part}"] = (1 - momentum) * old + momentum * batch
        self.written[f"{name}.num_batches_tracked"] = self.buffers[f"{name}.num_batches_tracked"] + 1

    def _layer_norm(self, x: Array, name: str, eps: float = 1e-5) -> Array:
        return self._scale(_standard(self.numbers, x, (x.ndim - 1,), eps), name, x.ndim - 1)

    def _instance_norm(self, x: Array, name: str, eps: float = 1e-5, affine: bool = False) -> Array:
        return self._scale(_standard(self.numbers, x, tuple(range(3, x.ndim)), eps), name, 2)

    def _rms_norm(self, x: Array, name: str, eps: float = 1e-5) -> Array:
        n = self.numbers
        return self._scale(x / n.apply("sqrt", n.mean(x * x, (x.ndim - 1,), keep=True) + eps), name, x.ndim - 1)

    def _spectral_norm(self, layer: Layer, x: Array, name: str) -> Array:
        """Return what the layer inside makes of x with its weight divided by u W v; u and v are constants."""
        n, (inner,), key = self.numbers, layer.layers, f"{name}.0.weight"
        weight = self.parameters[key]
        turned = n.permute(weight, [0, 2, 1, 3, 4]) if inner.kind == "conv_transpose2d" else weight
        matrix = turned.reshape((*turned.shape[:2], -1))
        v = _unit(n, n.einsum("pij,pi->pj", n.real(matrix), self.buffers[f"{name}.u"]))
        u = _unit(n, n.einsum("pij,pj->pi", n.real(matrix), v))
        u, v = (n.lift(np.asarray(n.settled(each))) for each in (u, v))
        if self.train:
            self.written[f"{name}.u"] = u
        value = n.sum(n.einsum("pij,pj->pi", matrix, v) * u, (1,))
        divided = weight / value.reshape((-1, *[1] * (weight.ndim - 1)))
        return replace(self, parameters={**self.parameters, key: divided}).run(layer.layers, x, f"{name}.")

    def _positional(self, x: Array, name: str, count: int | None = None, method: str = "learned") -> Array:
        n, (positions, features) = self.numbers, x.shape[2:]
        if method == "learned":
            return x + self._get(name, "weight")[:, None, :positions]
        table = np.zeros((positions, features))
        for p in range(positions):
            for i in range(features):
                angle = p / 10000 ** (2 * (i // 2) / features)
                table[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
        return x + n.lift(table[None, None])

    def _multi_head_attention(
        self, x: Array, name: str, heads: int, causal: bool = False, dropout: float = 0.0, bias: bool = True
    ) -> Array:
        """Return the attention head by head, with the softmax over the positions that may be seen."""
        n, width = self.numbers, x.shape[3] // heads
        parts = n.einsum("pbti,poi->pbto", x, self._get(name, "in_proj_weight"))
        if bias:
            parts = parts + self._get(name, "in_proj_bias")[:, None, None]
        kept = np.ones((x.shape[1], heads, x.shape[2], x.shape[2]))
        if self.train and dropout > 0:
            kept = self.mask(kept.shape, dropout) / (1 - dropout)
        ends = []
        for head in range(heads):
            q, k, v = (parts[..., (i * heads + head) * width : (i * heads + head + 1) * width] for i in range(3))
            scores = n.einsum("pbtd,pbsd->pbts", q, k) / math.sqrt(width)
            if causal:
                later = np.triu(np.ones(scores.shape[2:]), 1) > 0
                scores = scores + n.lift(np.where(later, -np.inf, 0.0)[None, None])
            shares = softmax(n, scores) * n.lift(kept[None, :, head])
            ends.append(n.einsum("pbts,pbsd->pbtd", shares, v))
        found = n.einsum("pbti,poi->pbto", n.join(ends, 3), self._get(name, "out_proj.weight"))
        return found + self._get(name, "out_proj.bias")[:, None, None] if bias else found

    def _lstm(self, x: Array, name: str, **options: object) -> Array:
        n = self.numbers

        def go_on(given: Array, hidden: Array, _: Array, cell: Array, size: int) -> tuple[Array, Array]:
            entry, forget, fresh, leave = cut(given + hidden, size)
            cell = sigmoid(n, forget) * cell + sigmoid(n, entry) * n.apply("tanh", fresh)
            return sigmoid(n, leave) * n.apply("tanh", cell), cell

        return self._recur(x, name, go_on, **options)

    def _gru(self, x: Array, name: str, **options: object) -> Array:
        n = self.numbers

        def go_on(given: Array, hidden: Array, state: Array, cell: Array, size: int) -> tuple[Array, Array]:
            (reset, update, fresh), (reset_too, update_too, fresh_too) = cut(given, size), cut(hidden, size)
            keep = sigmoid(n, update + update_too)
            new = n.apply("tanh", fresh + sigmoid(n, reset + reset_too) * fresh_too)
            return new + keep * (state - new), cell

        return self._recur(x, name, go_on, **options)

    def _recur(
        self,
        x: Array,
        name: str,
        go_on: Callable[..., tuple[Array, Array]],
        size: int = 1,
        bidirectional: bool = False,
        last: bool = False,
    ) -> Array:
        """Return the states position by position; a step gets what the gates see, and the state and cell before."""
        n, positions, sides = self.numbers, x.shape[2], []
        for side in ("", "_reverse")[: 1 + bidirectional]:
            weight, other, offset, more = (
                self._get(name, f"{part}_l0{side}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            state = cell = n.lift(np.zeros((1, x.shape[1], size)))
            found: list[Array] = []
            for position in reversed(range(positions)) if side else range(positions):
                given = n.einsum("pbi,poi->pbo", x[:, :, position], weight) + offset[:, None]
                hidden = n.einsum("pbi,poi->pbo", state, other) + more[:, None]
                state, cell = go_on(given, hidden, state, cell, size)
                found.append(state)
            ordered = found[::-1] if side else found
            sides.append(found[-1] if last else n.join([one[:, :, None] for one in ordered], 2))
        return n.join(sides, sides[0].ndim - 1)

    def _group_norm(self, x: Array, name: str, groups: int, eps: float = 1e-5) -> Array:
        grouped = x.reshape((*x.shape[:2], groups, -1))
        return self._scale(_standard(self.numbers, grouped, (3,), eps).reshape(x.shape), name, 2)

    def _dropout(self, x: Array, name: str, p: float = 0.5) -> Array:
        if not self.train or p == 0:
            return x
        return x * self.numbers.lift(self.mask(tuple(x.shape[1:]), p)[None] / (1 - p))

    def _embedding(self, x: Array, name: str, count: int, size: int, sparse: bool = False) -> Array:
        chosen = np.eye(count)[np.asarray(x[0], np.int64)]
        flat = self.numbers.lift(chosen.reshape((1, -1, count)))
        return self.numbers.einsum("pbi,pio->pbo", flat, self._get(name, "weight")).reshape((-1, *x.shape[1:], size))

    def _avg_pool(self, x: Array, name: str, kernel: object, stride: object = None, padding: object = 0) -> Array:
        windows = list(_windows(pad(self.numbers, x, pair(padding)), pair(kernel), pair(stride or kernel), (1, 1)))
        return sum(windows[1:], windows[0]) / len(windows)

    def _max_pool(self, x: Array, name: str, kernel: object, stride: object = None, padding: object = 0) -> Array:
        padded = pad(self.numbers, x, pair(padding), -np.inf)
        windows = list(_windows(padded, pair(kernel), pair(stride or kernel), (1, 1)))
        joined = self.numbers.join([window[..., None] for window in windows], 5)
        return greatest(self.numbers, joined, axis=4)


def read_options(layer: Layer) -> dict[str, object]:
    """Return what is written at a layer."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in layer.options.items()}


def pair(value: object) -> tuple[int, int]:
    """Return height and width of an option that is one number for both, or two."""
    return (value, value) if isinstance(value, int) else tuple(value)


def pad(n: Numbers, x: Array, size: tuple[int, int], value: float = 0.0) -> Array:
    """Return images with a margin."""
    for axis, width in ((3, size[0]), (4, size[1])):
        if width:
            shape = [*x.shape]
            shape[axis] = width
            margin = n.lift(np.full((1, *shape[1:]), value))
            x = n.join([margin, x, margin], axis)
    return x


def _windows(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Iterator[Array]:
    """Yield, for every tap of a window, what it sees at all places of the window."""
    height, width = ((x.shape[3 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            yield x[
                :,
                :,
                :,
                top : top + (height - 1) * stride[0] + 1 : stride[0],
                left : left + (width - 1) * stride[1] + 1 : stride[1],
            ]


def _correlate(n: Numbers, x: Array, weight: Array, stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """Return the sum over taps of what each sees times its weight."""
    kernel = weight.shape[3:]
    taps = [weight[:, :, :, i, j] for i in range(kernel[0]) for j in range(kernel[1])]
    seen = zip(_windows(x, kernel, stride, dilation), taps, strict=True)
    parts = [n.einsum("pbchw,poc->pbohw", window, tap) for window, tap in seen]
    return sum(parts[1:], parts[0])


def _surround(n: Numbers, x: Array, margins: Sequence[int]) -> Array:
    """Return images with zeros above, below, to the left and to the right."""
    for axis, before, behind in ((3, *margins[:2]), (4, *margins[2:])):
        around = [(*x.shape[:axis], width, *x.shape[axis + 1 :]) for width in (before, behind)]
        first, last = (n.lift(np.zeros((1, *shape[1:]))) for shape in around)
        x = n.join([first, x, last], axis)
    return x


def cut(x: Array, size: int) -> list[Array]:
    """Return the parts of one size along the last axis."""
    return [x[..., start : start + size] for start in range(0, x.shape[-1], size)]


def _unit(n: Numbers, x: Array) -> Array:
    """Return vectors of length 1."""
    return x / n.apply("sqrt", n.sum(x * x, (1,), keep=True))


def _standard(n: Numbers, x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """Return x with mean 0 and variance 1 over axes."""
    mean = n.mean(x, axes, keep=True)
    return (x - mean) / n.apply("sqrt", n.mean((x - mean) * (x - mean), axes, keep=True) + eps)


def walk(layers: Sequence[Layer], path: str = "") -> Iterator[tuple[str, Layer]]:
    """Yield every layer with its path, those inside a residual too."""
    for index, layer in enumerate(layers):
        yield f"{path}{index}", layer
        yield from walk(layer.layers, f"{path}{index}.")


def has_buffers(layers: Sequence[Layer]) -> bool:
    """Return whether some layer has buffers."""
    return any(layer.kind in ("batch_norm", "spectral_norm") for _, layer in walk(layers))

"""The meaning of the classes and functions of ``tests/properties/users.py``, as formulas of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.oracle.numbers import Array, Numbers

MODULE = "tests.properties.users"
Tensors = Mapping[str, Array]


def _row(array: Array) -> Array:
    return array.reshape((array.shape[0], 1, -1))


def coder(n: Numbers, p: Tensors, x: Array) -> Array:
    """Return tanh(W x + b)."""
    return n.apply("tanh", n.einsum("pbi,poi->pbo", x, p["weight"]) + _row(p["bias"]))


def reader(n: Numbers, p: Tensors, x: Array) -> Array:
    """Return the transposed W times x, every element scaled."""
    return n.einsum("pbi,pio->pbo", x, p["weight"]) * _row(p["scale"])


def mirror(n: Numbers, p: Tensors, x: Array) -> Array:
    """Return W tanh(W x) + b."""
    inner = n.apply("tanh", n.einsum("pbi,poi->pbo", x, p["first.weight"]))
    return n.einsum("pbi,poi->pbo", inner, p["first.weight"]) + _row(p["second.bias"])


def idler(n: Numbers, p: Tensors, x: Array) -> Array:
    """Return tanh(W x)."""
    return n.apply("tanh", n.einsum("pbi,poi->pbo", x, p["weight"]))


def louder(n: Numbers, p: Tensors, x: Array, train: bool) -> Array:
    """Return tanh(W x), twice that in training."""
    found = n.apply("tanh", n.einsum("pbi,poi->pbo", x, p["inner.weight"]))
    return 2 * found if train else found


def speaker(n: Numbers, p: Tensors, x: Array, train: bool) -> Array:
    """Return what the inner module makes of x, every element scaled; in training plus a third of x."""
    found = louder(n, p, x, train) * _row(p["scale"])
    return found + x / 3 if train else found


CLASSES: Mapping[str, Callable[..., Array]] = {
    f"{MODULE}:Coder": coder,
    f"{MODULE}:Reader": reader,
    f"{MODULE}:Mirror": mirror,
    f"{MODULE}:Idler": idler,
    f"{MODULE}:Recoder": coder,
    f"{MODULE}:Keeper": coder,
    f"{MODULE}:Louder": louder,
    f"{MODULE}:Speaker": speaker,
}
MODAL = frozenset({f"{MODULE}:Louder", f"{MODULE}:Speaker"})
"""The classes that ask whether they are in training."""
INNER: Mapping[str, Mapping[str, str]] = {
    f"{MODULE}:Mirror": {"second.weight": "first.weight"},
    f"{MODULE}:Louder": {"weight": "inner.weight"},
}
"""By class: what one of its parts, or all of it, calls by another name than the part or model it shares it with."""


def bend(n: Numbers, x: Array, strength: float = 1.0) -> Array:
    """Return x / sqrt(1 + strength x^2)."""
    return x / n.apply("sqrt", 1 + strength * x * x)


def gap(n: Numbers, x: Array, y: Array) -> Array:
    """Return the mean of log(1 + (x - y)^2)."""
    found = n.apply("log", 1 + (x - y) * (x - y))
    return n.mean(found, tuple(range(1, found.ndim)))


def kept(n: Numbers, x: Array, label: Array) -> tuple[Array, int]:
    """Return the sum of the means of log(1 + x^2) of the rows whose label is not 0, and how many there are."""
    chosen = [row for row in range(x.shape[1]) if label[0, row] != 0]
    rows = [n.apply("log", 1 + x[:, row] * x[:, row]) for row in chosen]
    means = [n.mean(row, tuple(range(1, row.ndim))) for row in rows]
    nothing = n.mean(0 * x, tuple(range(1, x.ndim)))
    return sum(means, start=nothing), len(chosen)


CALLS: Mapping[str, Callable[..., Array]] = {f"{MODULE}:bend": bend}
LOSSES: Mapping[str, Callable[..., Array]] = {f"{MODULE}:gap": gap}
COUNTED: Mapping[str, Callable[..., tuple[Array, int]]] = {f"{MODULE}:kept": kept}
"""Losses that return (sum, count)."""

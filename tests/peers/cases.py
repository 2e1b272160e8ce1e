"""Cases: what a peer's test runs, as a spec or a piece of one, and the numbers that the peer's test expects.

A ``Piece`` runs in one step together with the other pieces of its module, a ``Curve`` is a schedule that is evaluated
at some counts, a ``Document`` is a whole spec, and ``Refused`` is a spec that must not compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Numbers = Mapping[int, Any]
"""Values by step, counted from 1; of a curve, by the count that the peer calls step or epoch."""
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Inputs, models and ops of a spec. A reference to one of them begins with ``~``."""

    inputs: Fields = field(default_factory=dict)
    models: Fields = field(default_factory=dict)
    ops: Fields = field(default_factory=dict)
    start: Fields = field(default_factory=dict)
    """Initial weights, by ``model.parameter``."""
    feeds: Sequence[Fields] = ({},)
    """A batch for each step."""
    watch: str | tuple[str, ...]
    """An op, or ``model.parameter``; of several, all elements in one vector."""
    compat: str | None = None
    """As in a spec: whose defaults apply."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A schedule, clocked by train steps."""

    fields: Fields
    pace: tuple[int, int, int] = (1, 1, 1)
    """Steps per epoch, samples per batch and steps of the run, for durations."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole spec, with a batch for each step. It can also watch ``scale``, the loss scale after a step."""

    text: str
    feeds: Sequence[Fields]
    watch: str
    start: Fields = field(default_factory=dict)
    dtype: str = "float64"
    pace: tuple[int, int, int] = (1, 1, 1)
    """As of a curve."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A spec that is an error, where the peer's test expects an exception."""

    text: str
    code: str


@dataclass(frozen=True, kw_only=True)
class Differs:
    """Our numbers where they differ from the peer's by design, and the reason."""

    ours: Numbers
    why: str
    """One of ``tests.peers.reasons``."""
    theirs: Callable[[], Any] | None = None
    """The peer's formula for the last of its numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One case: the name of the peer's test, what to run, and the expected numbers."""

    test: str
    """``file::test`` of the peer; several cases of one test have different brackets."""
    runs: Piece | Curve | Document | Refused
    says: Numbers
    rtol: float = 1e-6
    atol: float = 1e-6
    differs: Differs | None = None

    def __str__(self) -> str:
        return self.test


def loss(
    test: str,
    name: str,
    inputs: Sequence[Any],
    says: Any,
    *,
    sample_weight: Any = None,
    compat: str | None = None,
    atol: float = 1e-6,
    differs: Differs | None = None,
    **fields: Any,
) -> Case:
    """Return the case of a loss of given inputs, the prediction first.

    ``sample_weight`` multiplies the unreduced losses; the mean or the sum is taken afterwards.
    """
    names = [f"x{number}" for number in range(len(inputs))]
    arrays = [np.asarray(value) for value in inputs]
    op: Fields = {"loss": name, "inputs": [f"~{each}" for each in names], **fields}
    ops: dict[str, Fields] = {"value": op}
    if sample_weight is not None:
        names.append("weights")
        arrays.append(np.asarray(sample_weight, float))
        reduction = fields.get("reduction", "mean")
        ops = {
            "each": {**op, "reduction": "none"},
            "weighted": {"call": "mul", "inputs": ["~each", "~weights"]},
            "value": {"call": reduction, "inputs": "~weighted"},
        }
    return Case(
        test=test,
        runs=Piece(
            inputs={key: describe(array) for key, array in zip(names, arrays, strict=True)},
            ops=ops,
            feeds=[dict(zip(names, arrays, strict=True))],
            watch="value",
            compat=compat,
        ),
        says={1: says},
        atol=atol,
        differs=differs,
    )


def descent(
    test: str,
    optimizer: Fields,
    start: Any,
    gradients: Sequence[Any],
    says: Numbers,
    *,
    model: Fields | None = None,
    update: Fields | None = None,
    compat: str | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    differs: Differs | None = None,
) -> Case:
    """Return the case of one parameter with given gradients: the loss is the sum of parameter times gradient."""
    begin = np.asarray(start, float)
    parameter = {"shape": list(begin.shape)}
    return Case(
        test=test,
        runs=Piece(
            inputs={"g": describe(begin)},
            models={"w": {"parameter": parameter, "optimizer": dict(optimizer), **(model or {})}},
            ops={
                "now": {"forward": "~w"},
                "products": {"call": "mul", "inputs": ["~now", "~g"]},
                "cost": {"call": "sum", "inputs": "~products"},
                "step": {"update": "~w", "loss": "~cost", **(update or {})},
            },
            start={"w.value": begin},
            feeds=[{"g": np.broadcast_to(np.asarray(each, float), begin.shape)} for each in gradients],
            watch="w.value",
            compat=compat,
        ),
        says=says,
        rtol=rtol,
        atol=atol,
        differs=differs,
    )


def curve(
    test: str,
    fields: Fields,
    says: Numbers | Sequence[float],
    *,
    pace: tuple[int, int, int] = (1, 1, 1),
    atol: float = 1e-6,
    differs: Differs | None = None,
) -> Case:
    """Return the case of a schedule; a list holds its values from count 0 on."""
    numbers = says if isinstance(says, Mapping) else dict(enumerate(says))
    return Case(test=test, runs=Curve(fields=fields, pace=pace), says=numbers, atol=atol, differs=differs)


def scale(test: str, options: Fields, finite: str, says: Sequence[float], **others: Any) -> Case:
    """Return the case of a loss scale; each character of ``finite`` is a step, ``0`` one with an overflow."""
    written = ", ".join(f"{key}: {value}" for key, value in options.items())
    return Case(
        test=test,
        runs=Document(
            text=GIVEN.replace("LOSS_SCALE", f"{{{written}}}"),
            feeds=[{"g": np.array([1.0 if each == "1" else np.nan] * 2, "float32")} for each in finite],
            watch="scale",
            dtype="float32",
        ),
        says=dict(enumerate(says, start=1)),
        **others,
    )


GIVEN = """
graphspec: 1
name: given
inputs: {g: {shape: [2]}}
models: {w: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 0.5}}}
ops:
  now: {forward: w}
  products: {call: mul, inputs: [now, g]}
  cost: {call: sum, inputs: products}
  step: {update: w, loss: cost}
precision: {loss_scale: LOSS_SCALE}
"""
"""A parameter whose gradient is an input, under a loss scale."""


def describe(array: np.ndarray) -> Fields:
    """Return the declaration of an input for an array; a step built in float64 keeps float64."""
    kind = {"f": "float32", "i": "int64", "b": "bool"}[array.dtype.kind]
    return {"shape": list(array.shape), "dtype": kind}

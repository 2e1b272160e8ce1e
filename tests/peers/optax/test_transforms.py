"""optax: optax/transforms/*_test.py, _src/transform_test.py, _src/update_test.py.

Clips, accumulation, averages, constraints, and skipped updates. The result of a transform is read from one sgd step
from 0 at rate 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document, Piece, descent
from tests.peers.harness import check

SGD = {"name": "sgd", "lr": 1.0}
FIRST, SECOND = np.array([500.0, 5]), np.array([300.0, 3])
PARAMS = np.array([1.0, 2]), np.array([3.0, 4])


def pair(update: dict[str, Any], start: tuple[Any, Any] = (np.zeros(2), np.zeros(2))) -> Piece:
    """Return an update of two parameters whose gradients are optax's 500, 5 and 300, 3."""
    ops: dict[str, Any] = {"total": {"call": "add", "inputs": ["~sum0", "~sum1"]}}
    for name in ("0", "1"):
        ops[f"now{name}"] = {"forward": f"~w{name}"}
        ops[f"products{name}"] = {"call": "mul", "inputs": [f"~now{name}", f"~g{name}"]}
        ops[f"sum{name}"] = {"call": "sum", "inputs": f"~products{name}"}
    return Piece(
        inputs={"g0": {"shape": [2]}, "g1": {"shape": [2]}},
        models={name: {"parameter": {"shape": [2]}, "optimizer": SGD} for name in ("w0", "w1")},
        ops={**ops, "step": {"update": ["~w0", "~w1"], "loss": "~total", **update}},
        start={"w0.value": start[0], "w1.value": start[1]},
        feeds=[{"g0": FIRST, "g1": SECOND}],
        watch=("w0.value", "w1.value"),
    )


def clips() -> Iterator[Case]:
    test = "_clipping_test.py::ClippingTest"
    both, length = np.concatenate([FIRST, SECOND]), np.linalg.norm([*FIRST, *SECOND])
    yield Case(test=f"{test}.test_clip[1e6]", runs=pair({"clip": {"value": 1e6}}), says={1: -both})
    yield Case(test=f"{test}.test_clip[1]", runs=pair({"clip": {"value": 1.0}}), says={1: -np.ones(4)})
    units = [gradient / np.linalg.norm(gradient) for gradient in (FIRST, SECOND)]
    for number in (1, 50):
        says = {1: -both / length / number}
        piece = pair({"clip": {"norm": 1 / number}})
        yield Case(test=f"{test}.test_clip_by_global_norm[{number}]", runs=piece, says=says)
        left = [start - unit * np.linalg.norm(start) / number for start, unit in zip(PARAMS, units, strict=True)]
        piece = pair({"clip": {"agc": 1 / number}}, PARAMS)
        yield Case(test=f"{test}.test_adaptive_grad_clip[{number}]", runs=piece, says={1: np.concatenate(left)})


def transforms() -> Iterator[Case]:
    test = "transform_test.py::TransformTest"
    for name, given, left in (
        ("1d", [1.0, 2], [1.0, 2]),
        ("2d", [[1.0, 2], [3, 4]], [[-0.5, 0.5], [-0.5, 0.5]]),
        ("3d", [[[1.0, 2], [3, 4]], [[5, 6], [7, 8]]], [[[-1.5, -0.5], [0.5, 1.5]]] * 2),
    ):
        yield transformed(f"{test}.test_centralize[{name}]", {"transform": "centralize"}, given, left)
    for power in (1, 2, 3):
        scale = {"transform": "scale", "args": {"factor": 0.1**power}}
        yield transformed(f"{test}.test_scale[{power}]", scale, FIRST, FIRST * 0.1**power)
    square, ones = np.array([[1.0, 2], [3, 4]]), np.ones((2, 2))
    columns = square * np.minimum(1, np.linalg.norm(ones, axis=0) / np.linalg.norm(square, axis=0))
    agc = {"transform": "clip_agc", "args": {"clipping": 1.0, "axis": -1}}
    name = "_clipping_test.py::ClippingTest.test_adaptive_grad_clip[2d]"
    yield transformed(name, agc, square, columns, start=ones)
    start = PARAMS[0]
    says = {step: start - 0.01 * FIRST * (step // 4 * 4) for step in range(1, 13)}
    every = {"accumulate": {"steps": 4, "reduce": "sum"}}
    rate = {"name": "sgd", "lr": 0.01}
    yield descent(f"{test}.test_apply_every", rate, start, [FIRST] * 12, says, update=every)
    test = "_adding_test.py::AddingTest.test_add_decayed_weights"
    decay = {**SGD, "weight_decay": 0.1}
    yield descent(f"{test}[decayed]", decay, [1.0, 1], [0.0], {1: [0.9, 0.9]})
    masked = {"groups": [{"match": "value", "weight_decay": 0}]}
    yield descent(f"{test}[masked]", decay, [1.0, 1], [0.0], {1: [1.0, 1]}, model=masked)
    test = "_constraining_test.py::ConstraintsTest.test_keep_params_nonnegative"
    slopes = [[500.0, -500, 0]]
    for begin, free, kept in (
        (-1.0, [-6.0, 4, -1], [0.0, 4, 0]),
        (1.0, [-4.0, 6, 1], [0.0, 6, 1]),
        (0.0, [-5.0, 5, 0], [0.0, 5, 0]),
    ):
        yield descent(f"{test}[from {begin}, free]", rate, [begin] * 3, slopes, {1: free})
        bound = {"constraint": "non_negative"}
        yield descent(f"{test}[from {begin}]", rate, [begin] * 3, slopes, {1: kept}, model=bound)


def transformed(test: str, transform: dict[str, Any], gradient: Any, left: Any, start: Any = None) -> Case:
    """Return the case of a transform of one gradient."""
    given, begin = np.asarray(gradient), np.zeros_like(gradient) if start is None else start
    case = descent(test, SGD, begin, [given], {1: begin - np.asarray(left)})
    assert isinstance(case.runs, Piece)
    ops = dict(case.runs.ops)
    ops["slopes"] = {"gradient": "~cost", "wrt": "~w"}
    ops["left"] = {**transform, "inputs": "~slopes"}
    ops["step"] = {"update": "~w", "gradients": "~left"}
    piece = Piece(
        inputs=case.runs.inputs,
        models=case.runs.models,
        ops=ops,
        start=case.runs.start,
        feeds=case.runs.feeds,
        watch=case.runs.watch,
    )
    return Case(test=test, runs=piece, says=case.says)


def windows() -> Iterator[Case]:
    test = "_accumulation_test.py::AccumulationTest"
    says = {1: [0.0], 2: [0.0], 3: [0.0], 4: [-2.5]}
    grads = [[1.0], [2.0], [3.0], [4.0]]
    yield descent(f"{test}.test_multi_steps_computes_mean", SGD, [0.0], grads, says, update={"accumulate": 4})
    skipped = {"accumulate": 2, "on_overflow": "own"}
    grads = [[1.0], [1.0], [np.inf], [np.nan], [1.0], [1.0]]
    says = {2: [-1.0], 3: [-1.0], 4: [-1.0], 6: [-2.0]}
    yield descent(f"{test}.test_multi_steps_skip_not_finite", SGD, [0.0], grads, says, update=skipped)
    test = "_conditionality_test.py::ConditionalityTest.test_apply_if_finite"
    grads = [[value] for value in (1.0, np.nan, np.nan, 1.0, np.nan, np.nan)]
    says = {1: [-1.0], 2: [-1.0], 3: [-1.0], 4: [-2.0], 5: [-2.0], 6: [-2.0]}
    for name, momentum in (("sgd", {}), ("stateful_sgd", {"momentum": 0.0})):
        own = {"on_overflow": "own"}
        yield descent(f"{test}[{name}]", {**SGD, **momentum}, [0.0], grads, says, update=own)


STATE = """
graphspec: 1
name: zero
inputs: {x: {shape: []}}
state: {mean: {shape: []}}
ops:
  next: {call: lerp, inputs: [mean, x, 0.1]}
  move: {assign: mean, value: next}
outputs: [next]
"""


def averages() -> Iterator[Case]:
    test = "_accumulation_test.py::AccumulationTest.test_ema"
    document = Document(text=STATE, feeds=[{"x": np.array(5.0)}, {"x": np.array(7.0)}], watch="next")
    yield Case(test=test, runs=document, says={1: 0.5, 2: 0.1 * (7 + 0.9 * 5)})
    text = GIVEN.replace("LOSS_SCALE", "none").replace("lr: 0.5}}", "lr: 1.0}}, slow: {like: w}")
    for name, op, steps, says in (
        ("test_incremental_update", "{ema: w, into: slow, tau: 0.5}", 1, {1: [1.5, 1.5]}),
        (
            "test_periodic_update",
            "{copy: w, into: slow, every: 5, after: step}",
            10,
            {step: [1.0, 1] if step < 5 else [2.0, 2] for step in range(1, 11)},
        ),
    ):
        document = Document(
            text=text.replace("\nprecision:", f"\n  follow: {op}\nprecision:"),
            feeds=[{"g": -np.ones(2)}, *[{"g": np.zeros(2)}] * (steps - 1)],
            watch="slow.value",
            start={"w.value": [1.0, 1], "slow.value": [1.0, 1]},
        )
        yield Case(test=f"update_test.py::UpdateTest.{name}", runs=document, says=says)


CASES = (*clips(), *transforms(), *windows(), *averages())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_optax_transforms(case: Case, backend: str) -> None:
    check(case, CASES, backend)

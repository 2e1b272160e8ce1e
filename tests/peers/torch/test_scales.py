"""PyTorch: the tests of GradScaler (test/test_cuda.py) and of gradient clipping (test/test_nn.py)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Differs, Document, descent, scale
from tests.peers.harness import check
from tests.peers.reasons import MICRO_STEPS

SGD = {"name": "sgd", "lr": 1.0}


def scales() -> Iterator[Case]:
    options = {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.25, "growth_interval": 2}
    yield scale("test_cuda.py::TestCuda.test_grad_scaling_update_scale", options, "110", [4.0, 8.0, 2.0])
    options = {"init_scale": 128.0, "growth_factor": 2.0, "growth_interval": 1}
    yield scale(
        "test_cuda.py::TestCuda._run_scaling_case[unskipped=3, skipped=1]", options, "1101", [256, 512, 256, 512]
    )
    test = "test_cuda.py::TestCuda.test_grad_scaling_accumulation"
    text = GIVEN.replace("loss: cost", "loss: cost, accumulate: 2")
    ones = [{"g": np.ones(2, "float32")}] * 4
    for name, options, ours in (
        ("", "{init_scale: 128, growth_interval: 1}", 2048.0),
        ("[growth_interval times the window]", "{init_scale: 128, growth_interval: 2}", 512.0),
    ):
        document = Document(text=text.replace("LOSS_SCALE", options), feeds=ones, watch="scale", dtype="float32")
        differs = Differs(ours={4: ours}, why=MICRO_STEPS, theirs=lambda: 128 * 2.0**2)
        yield Case(test=test + name, runs=document, says={4: 512.0}, differs=None if name else differs)
    feeds = [{"g": np.array([value, 1.0], "float32")} for value in (1.0, np.inf, -np.inf, np.nan, 1.0)]
    text = GIVEN.replace("LOSS_SCALE", "{init_scale: 4.0}").replace("lr: 0.5", "lr: 1.0")
    document = Document(text=text, feeds=feeds, watch="w.value", start={"w.value": [0.0, 0]}, dtype="float32")
    says = {1: [-1.0, -1], 2: [-1.0, -1], 3: [-1.0, -1], 4: [-1.0, -1], 5: [-2.0, -2]}
    yield Case(test="test_cuda.py::TestCuda.test_grad_scaling_unscale[inf and nan anywhere]", runs=document, says=says)


def clips() -> Iterator[Case]:
    """Yield the clipping tests; PyTorch adds 1e-6 to the norm."""
    test = "test_nn.py::TestNN"
    long, ones = np.arange(1.0, 101).reshape(10, 10), np.ones(10) / 1000
    gradients = np.concatenate([long.ravel(), ones])
    length = np.linalg.norm(gradients)
    norm = {"clip": {"norm": 2.0, "eps": 1e-6}}
    start = np.zeros(110)
    says = {1: -gradients * 2 / (length + 1e-6)}
    yield descent(f"{test}.test_clip_grad_norm[2]", SGD, start, [gradients], says, update=norm)
    small = np.concatenate([np.full(100, 1 / 20000), np.full(10, 1 / 500)])
    yield descent(f"{test}.test_clip_grad_norm[shorter]", SGD, start, [small], {1: -small}, update=norm)
    values = np.concatenate([np.arange(-50.0, 50) / 5, 2 * np.ones(10)])
    value = {"clip": {"value": 2.5}}
    yield descent(
        f"{test}.test_clip_grad_value[2.5]", SGD, start, [values], {1: -np.clip(values, -2.5, 2.5)}, update=value
    )


CASES = (*scales(), *clips())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch_scales_and_clips(case: Case, backend: str) -> None:
    check(case, CASES, backend)

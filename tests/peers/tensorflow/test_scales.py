"""TensorFlow: loss_scale_test.py and loss_scale_optimizer_test.py of tensorflow/python/training/experimental.

Unless a test says otherwise, the initial scale is 1 and doubles after 2 finite steps. ``multiplier`` is both factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.peers.cases import GIVEN, Case, Document, scale
from tests.peers.harness import check

TEST = "loss_scale_test.py::DynamicLossScaleTest"
MOST = float(np.finfo(np.float32).max)


def options(initial: float = 1.0, period: int = 2) -> dict[str, Any]:
    """Return the options of a loss scale by TensorFlow's names."""
    return {"initial_loss_scale": initial, "increment_period": period}


def scales() -> Iterator[Case]:
    yield scale(f"{TEST}.test_increase", options(), "111111", [1, 2, 2, 4, 4, 8])
    capped = [MOST / 4, MOST / 2, MOST / 2, MOST, MOST, MOST]
    yield scale(f"{TEST}.test_keep_increasing_until_capped", options(MOST / 4), "111111", capped)
    yield scale(f"{TEST}.test_decrease_every_step", options(1024), "000000", [512, 256, 128, 64, 32, 16])
    yield scale(f"{TEST}.test_keep_decreasing_until_one", options(16), "000000", [8, 4, 2, 1, 1, 1])
    yield scale(f"{TEST}.test_nan_clear_good_step", options(), "11101", [1, 2, 2, 1, 1])
    yield scale(f"{TEST}.test_trigger_loss_scale_update_each_step", options(1, 1), "111011", [2, 4, 8, 4, 8, 16])
    name = "test_alternating_good_and_bad_gradients_trigger"
    yield scale(f"{TEST}.{name}_each_step", options(1, 1), "101010101", [2, 1, 2, 1, 2, 1, 2, 1, 2])
    yield scale(f"{TEST}.{name}_every_other_step", options(32), "1010101", [32, 16, 16, 8, 8, 4, 4])
    thrice = {**options(4), "multiplier": 3}
    yield scale(f"{TEST}.test_nondefault_multiplier", thrice, "11011", [4, 12, 4, 4, 12])
    mixed = [2, 2, 4, 4, 2, 2, 1, 1, 2, 2, 1]
    yield scale(f"{TEST}.test_random_mix_good_and_bad_gradients", options(4), "01110101110", mixed)
    fixed = {"kind": "fixed", "initial": 1000}
    yield scale("loss_scale_test.py::FixedLossScaleTest.test_basic", fixed, "10", [1000, 1000])
    # the default initial scale is 2^15
    yield scale(f"{TEST}.test_get", {"kind": "dynamic"}, "10", [2.0**15, 2.0**14])


def optimizers() -> Iterator[Case]:
    """Yield steps under a scale; the loss is the variable itself, or twice that."""
    test = "loss_scale_optimizer_test.py::MixedPrecisionLossScaleOptimizerTest"
    once = {"initial_loss_scale": 2, "increment_period": 1}
    for name, written, optimizer, start, slopes, watch, says in (
        ("testFixedLossScaleAppliedToLossWithMinimize", 10, {"lr": 2.0}, [5.0], [1.0], "w.value", [[3.0]]),
        ("testDynamicLossScale", once, {"lr": 2.0}, [5.0], [1.0, 1.0], "w.value", [[3.0], [1.0]]),
        ("testDynamicUpdate", once, {"lr": 1.0}, [1.0, 2], [2.0, np.nan], "w.value", [[-1.0, 0], [-1.0, 0]]),
        ("testDynamicUpdate[scale]", once, {"lr": 1.0}, [1.0, 2], [2.0, np.nan], "scale", [4, 2]),
        (
            "testDynamicLossScaleWithSlots",
            {**once, "multiplier": 4},
            {"lr": 1.0, "momentum": 1.0},
            [1.0, 2],
            [1.0, 1.0],
            "w.value",
            [[0.0, 1], [-2.0, -1]],
        ),
        (
            "testDynamicLossScaleWithSlots[scale]",
            {**once, "multiplier": 4},
            {"lr": 1.0, "momentum": 1.0},
            [1.0, 2],
            [1.0, 1.0],
            "scale",
            [8, 32],
        ),
    ):
        rule = ", ".join(f"{key}: {value}" for key, value in {"name": "sgd", **optimizer}.items())
        text = GIVEN.replace("name: sgd, lr: 0.5", rule).replace("[2]", f"[{len(start)}]")
        document = Document(
            text=text.replace("LOSS_SCALE", str(written).replace("'", "")),
            feeds=[{"g": np.full(len(start), slope, "float32")} for slope in slopes],
            watch=watch,
            start={"w.value": start},
            dtype="float32",
        )
        yield Case(test=f"{test}.{name}", runs=document, says=dict(enumerate(says, start=1)))


CASES = (*scales(), *optimizers())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tensorflow_scales(case: Case, backend: str) -> None:
    check(case, CASES, backend)

"""A step with a loss scale waits for its device once at most, and a step without one never."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.overflows import INF
from tests.features.steps import build_step
from tests.features.test_b10 import ORDERED, TWO
from tests.features.waiting import counted

GATED = TWO.replace("decay: 0.5}", "decay: 0.5, every: 2}")
WINDOWED = TWO.replace("loss: la}", "loss: la, accumulate: {steps: 2, reduce: steps}}")
SPECS = {"one group": TWO, "two groups": ORDERED, "gates": GATED, "windows": WINDOWED}


def count(text: str, backend: str, settings: tuple[str, ...] = (), slopes=((1.0, 1.0), (INF, 1.0), (1.0, 1.0))):
    step = build_step(text, backend, settings, dtype="float32")
    batches = [{"p": np.array(p, np.float32), "q": np.array(q, np.float32)} for p, q in slopes]
    step(batches[0])  # whatever is done in a first step alone
    counts = []
    for batch in batches:
        with counted(backend) as seen:
            step(batch)
        counts.append(len(seen))
    return counts


@pytest.mark.parametrize("spec", SPECS)
def test_a_scaled_step_waits_once_at_most(spec: str, backend: str) -> None:
    counts = count(SPECS[spec], backend)
    assert max(counts) <= 1
    assert backend == "tensorflow" or counts == [1, 1, 1]


@pytest.mark.parametrize("spec", SPECS)
def test_a_step_without_a_scale_never_waits(spec: str, backend: str) -> None:
    assert count(SPECS[spec], backend, ("precision.loss_scale=none",)) == [0, 0, 0]


@pytest.mark.needs("tensorflow")
def test_a_graph_that_nothing_is_gated_in_never_waits() -> None:
    assert count(TWO, "tensorflow") == [0, 0, 0]


def test_reads_are_counted_at_all(backend: str) -> None:
    step = build_step(f"{TWO}outputs: [la, lb]\n", backend, dtype="float32")
    outputs = step({"p": np.array(1.0, np.float32), "q": np.array(1.0, np.float32)})
    with counted(backend) as seen:
        float(outputs["la"])
        bool(outputs["lb"] > 0)
    assert len(seen) == 2

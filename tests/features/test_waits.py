"""A step with a loss scale waits for its device once at most, and a step without one never."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.overflows import INF
from tests.features.steps import build_step
from tests.features.test_shared_loss_scale import ORDERED, TWO
from tests.features.test_skipped_steps import RULES
from tests.features.waiting import counted

GATED = TWO.replace("decay: 0.5}", "decay: 0.5, every: 2}")
WINDOWED = TWO.replace("loss: la}", "loss: la, accumulate: {steps: 2, reduce: steps}}")
READING = ("adamax", "nadam")
"""Rules of which torch.optim reads the count of updates in every step, which is a tensor of the host."""
SPECS = {"one group": TWO, "two groups": ORDERED, "gates": GATED, "windows": WINDOWED}


def given(p: float, q: float) -> dict[str, np.ndarray]:
    return {"p": np.array(p, np.float32), "q": np.array(q, np.float32)}


def is_of_a(name: str) -> bool:
    return name.split(".")[1] == "a"


def count(text: str, backend: str, settings: tuple[str, ...] = (), slopes=((1.0, 1.0), (INF, 1.0), (1.0, 1.0))):
    step = build_step(text, backend, settings, dtype="float32")
    batches = [given(*each) for each in slopes]
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


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in READING])
def test_every_rule_of_an_early_group_waits_with_the_others(rule: str, backend: str) -> None:
    changed = f"models.a.optimizer={{name: {rule}, lr: 0.1}}"
    counts = count(ORDERED, backend, (changed,), slopes=((1.0, 1.0), (INF, 1.0), (1.0, INF)))
    assert counts == [1, 1, 1] if backend == "torch" else max(counts) <= 1


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", [(), ((1.0, 1.0),)], ids=["before", "after"])
def test_every_rule_of_an_early_group_is_put_back_bit_for_bit(rule: str, first: tuple, backend: str) -> None:
    step = build_step(ORDERED, backend, (f"models.a.optimizer={{name: {rule}, lr: 0.1}}",), dtype="float32")
    for slopes in first:
        step(given(*slopes))
    before = {name: step.numpy(each).tobytes() for name, each in step.tensors().items() if is_of_a(name)}
    step(given(INF, 1.0))
    assert {name: step.numpy(each).tobytes() for name, each in step.tensors().items() if is_of_a(name)} == before
    assert step.report.held[:1] == ("step_a",)
    assert step.optimizers["a"].iterations == len(first)


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

"""An average and what it counts are state like any other: on the step's device, saved, restored, and portable."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from tests.conformance.scenario import BACKENDS
from tests.features.averages import SPEC, follow, make, read
from tests.features.steps import build_step

pytestmark = pytest.mark.row("E7")

FIELDS = "decay: {kind: tf, max: 0.9}, init: zeros"


def test_it_has_a_name_and_a_count_of_its_own(backend: str) -> None:
    step = make(backend, FIELDS)
    follow(step, 3)
    state = step.state()
    assert {"models.w.value", "models.average.value"} == set(state.arrays)
    assert state.counters["averages"] == {"average": 3}


@pytest.mark.parametrize("listed", ["decay: 0.9}\n  second: {ema: average, decay: 0.8", "decay: 0.9"])
def test_an_average_of_it_may_be_listed_before_it(listed: str, backend: str) -> None:
    text = (
        SPEC if "second" in listed else SPEC.replace("  average:", "  second: {ema: average, decay: 0.8}\n  average:")
    )
    step = make(backend, listed, text)
    first = second = 0.0
    for t in range(1, 6):
        first = 0.9 * first + 0.1 * t
        second = 0.8 * second + 0.2 * first
        step({})
        assert np.allclose([read(step), read(step, "second")], [first, second], rtol=1e-12, atol=0)


def test_it_is_on_the_device_of_the_step(backend: str) -> None:
    step = make(backend, FIELDS)
    where = {name: str(value.device).lower() for name, value in step.tensors().items() if name.startswith("models.")}
    assert where["models.average.value"] == where["models.w.value"]
    assert step.device.partition(":")[0] in where["models.average.value"]


def test_a_restored_average_goes_on_as_before(backend: str) -> None:
    step = make(backend, FIELDS)
    follow(step, 2)
    state = step.state()
    expected = follow(step, 3)
    step.restore(state)
    assert follow(step, 3) == expected


@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize(
    "fields", [FIELDS, "decay: 0.9, every: 2, start: 2", "decay: {kind: power, gamma: 3.0}, every: 2"]
)
def test_what_one_backend_saved_another_continues(fields: str) -> None:
    steps = [make(backend, fields) for backend in BACKENDS]
    follow(steps[0], 3)
    steps[1].restore(steps[0].state())
    assert np.allclose(follow(steps[0], 4), follow(steps[1], 4), rtol=1e-12, atol=0)


def test_an_average_whose_count_nobody_knows_is_refused(backend: str) -> None:
    plain, counted = make(backend, "decay: 0.9"), make(backend, "decay: {kind: tf_warm, max: 0.9}")
    follow(plain, 3)
    before = read(counted)
    with pytest.raises(SpecError, match=r"GS264.*lacks what the step has: averages\.average"):
        counted.restore(plain.state())  # at its first time it would copy its source, and lose what it holds
    assert read(counted) == before


def test_an_average_of_another_shape_is_refused_and_nothing_changes(backend: str) -> None:
    step, other = make(backend, FIELDS), make(backend, FIELDS, settings=["models.w.parameter.shape=[3]"])
    follow(step, 2)
    before = read(step)
    with pytest.raises(SpecError, match=r"GS264.*models\.average\.value"):
        step.restore(other.state())
    assert read(step) == before


def test_an_exported_average_has_no_zeros_left(backend: str, tmp_path) -> None:
    from safetensors.numpy import load

    text = SPEC.replace("FIELDS", f"{FIELDS}, use: {{eval: swap}}").replace(
        "outputs:", "  seen: {metric: mean, inputs: value}\noutputs:"
    )
    step = build_step(text, backend)
    step({})
    exported = step.export(tmp_path / "exported", format="weights")
    found = load(exported.files()["w.safetensors"])
    assert np.allclose(found["value"], 1.0, rtol=1e-12)

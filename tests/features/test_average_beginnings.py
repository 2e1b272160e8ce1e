"""An average begins as the target's weights, as a copy, or at zero, which is taken out wherever it is read (`init`)."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError, load
from tests.features.averages import SPEC, follow, make

pytestmark = pytest.mark.row("E9")

EVALUATED = SPEC.replace("outputs: [height]", "  seen: {forward: average, mode: train}\noutputs: [height, seen]")


def test_it_begins_as_the_initial_weights_as_in_timm_and_byol(backend: str) -> None:
    found = follow(make(backend, "decay: 0.9, init: initial"), 6)
    assert np.allclose(found, [0.1, 0.29, 0.561, 0.9049, 1.31441, 1.782969], rtol=1e-12, atol=0)
    assert follow(make(backend, "decay: 0.9"), 6) == found


def test_it_begins_as_the_first_updated_weights_as_in_swa_utils_and_keras(backend: str) -> None:
    found = follow(make(backend, "decay: 0.9, init: first_update"), 6)
    assert np.allclose(found, [1, 1.1, 1.29, 1.561, 1.9049, 2.31441], rtol=1e-12, atol=0)


@pytest.mark.needs("torch")
def test_first_updates_are_those_of_averaged_models() -> None:
    import torch

    swa = torch.optim.swa_utils
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    averaged = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    expected = []
    for t in range(1, 7):
        model.weight.data.fill_(t)
        averaged.update_parameters(model)
        expected.append(averaged.module.weight.item())
    found = follow(make("torch", "decay: 0.9, init: first_update"), 6)
    assert np.allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.needs("tensorflow")
def test_first_updates_are_those_of_keras() -> None:
    import keras

    variable = keras.Variable([0.0], dtype="float32")
    optimizer = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=None)
    optimizer.build([variable])
    expected = []
    for _ in range(6):
        optimizer.apply([keras.ops.convert_to_tensor([-1.0])])
        expected.append(float(optimizer._model_variables_moving_average[0].value[0]))
    found = follow(make("tensorflow", "decay: 0.9, init: first_update"), 6)
    assert np.allclose(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("decay", ["0.9", "{kind: tf, max: 0.5}", "{kind: constant, decay: 0.9}"])
@pytest.mark.parametrize("start", ["", ", start: 3 steps"])
def test_zeros_are_taken_out_as_by_optax(decay: str, start: str, backend: str) -> None:
    begun, e, product, expected, n = 3 if start else 1, 0.0, 1.0, [], 0
    for t in range(1, 8):
        if t >= begun:
            n += 1
            d = min(0.5, (1 + n) / (10 + n)) if "tf" in decay else 0.9
            e, product = d * e + (1 - d) * t, product * d
        expected.append(e / (1 - product) if n else 0.0)
    found = follow(make(backend, f"decay: {decay}, init: zeros{start}"), 7)
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_whoever_calls_the_average_reads_it_without_its_zeros(backend: str) -> None:
    step = make(backend, "decay: 0.9, init: zeros", EVALUATED)
    step({})
    seen = step.numpy(step({})["seen"])  # taken before the second write
    assert np.allclose(seen, 1.0, rtol=1e-12, atol=0)


def test_a_decay_of_one_leaves_the_beginning_alone(backend: str) -> None:
    assert follow(make(backend, "decay: 1.0, init: zeros"), 3) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("rate", ["decay", "tau"])
def test_zeros_under_a_schedule_of_steps_are_refused(rate: str) -> None:
    fields = f"{rate}: {{schedule: linear, from: 0.5, to: 1.0, over: 4}}, init: zeros"
    with pytest.raises(SpecError, match=r"GS053.*`init: zeros` goes with a number or a formula"):
        load(SPEC.replace("FIELDS", fields))


@pytest.mark.parametrize("begin", ["initial", "first_update"])
def test_a_schedule_of_steps_may_begin_either_way(begin: str, backend: str) -> None:
    curve = "{schedule: linear, from: 0.5, to: 0.9, over: 4}"
    e, expected = 0.0, []
    for t in range(1, 6):
        d = 0.5 + 0.1 * min(t - 1, 4)
        d = 0.0 if begin == "first_update" and t == 1 else d
        e = d * e + (1 - d) * t
        expected.append(e)
    found = follow(make(backend, f"decay: {curve}, init: {begin}"), 5)
    assert np.allclose(found, expected, rtol=1e-12, atol=0)

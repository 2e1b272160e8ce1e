"""A loss scale is fixed or dynamic: it grows after finite steps, shrinks after others, never below its floor."""

from __future__ import annotations

import pytest

from graphspec import SpecError
from tests.features.overflows import INF, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("B1")

SCALE = "precision.loss_scale={initial: %s, growth_steps: %s, growth_factor: %s, backoff_factor: %s}"
TRACES = [
    ((1, 1, 2, 0.5), "101010101", [2, 1, 2, 1, 2, 1, 2, 1, 2]),
    ((32, 2, 2, 0.5), "1010101", [32, 16, 16, 8, 8, 4, 4]),
    ((4, 2, 3, 1 / 3), "11011", [4, 12, 4, 4, 12]),
    ((4, 2, 2, 0.25), "110", [4, 8, 2]),
]
"""What TensorFlow's and PyTorch's own tests say of (initial, growth steps, growth, backoff), step by step."""


def trace(backend: str, scale: str, pattern: str) -> list[float | None]:
    step = made(backend, [scale])
    found = []
    for each in pattern:
        give(step, 1.0 if each == "1" else INF)
        found.append(step.report.scale_after)
    return found


@pytest.mark.parametrize(("options", "pattern", "scales"), TRACES)
def test_the_scale_follows_the_verdicts(options: tuple[float, ...], pattern: str, scales: list, backend: str) -> None:
    assert trace(backend, SCALE % options, pattern) == scales


def test_growth_that_is_no_float32_is_refused_and_counts_anew(backend: str) -> None:
    big = pytest.approx(1e38, rel=1e-6)
    assert trace(backend, SCALE % (1e38, 1, 16, 0.5), "111") == [big, big, big]


def test_the_scale_stops_at_its_floor_and_never_comes_to_zero(backend: str) -> None:
    assert trace(backend, SCALE % (4, 2, 2, 0.5), "00000") == [2, 1, 1, 1, 1]
    lower = "precision.loss_scale={initial: 0.5, min_scale: 0.25}"
    assert trace(backend, lower, "000") == [0.25, 0.25, 0.25]


def test_a_fixed_scale_skips_and_stays(backend: str) -> None:
    step = made(backend, ["precision.loss_scale=128"])
    for slope in (1.0, INF, 1.0):
        give(step, slope)
        assert (step.report.scale_before, step.report.scale_after) == (128, 128)
    assert weights(step)["v.value"].tolist() == [-2.0, -2.0]


def test_a_step_without_a_scale_reports_none(backend: str) -> None:
    step = made(backend, ["precision.loss_scale=none"])
    give(step, 1.0)
    assert (step.report.scale_before, step.report.scale_after) == (None, None)


@pytest.mark.parametrize(
    "written",
    [
        "{init_scale: 8, growth_interval: 3, growth_factor: 4, backoff_factor: 0.25}",
        "{initial_loss_scale: 8, increment_period: 3, multiplier: 4, backoff_factor: 0.25}",
        "{kind: dynamic, initial_scale: 8, dynamic_growth_steps: 3, growth_factor: 4, backoff_factor: 0.25}",
    ],
)
def test_the_names_of_torch_and_tensorflow_say_the_same(written: str, backend: str) -> None:
    assert trace(backend, f"precision.loss_scale={written}", "11101") == [8, 8, 32, 8, 8]


def test_the_multiplier_of_tensorflow_grows_and_divides(backend: str) -> None:
    written = "precision.loss_scale={initial_loss_scale: 4, increment_period: 2, multiplier: 3}"
    assert trace(backend, written, "11011") == [4, 12, 4, 4, 12]


WINDOW = 4
STEPS = 16


def windows(backend: str, growth_steps: int) -> list[float | None]:
    """Return the scales of 16 steps in windows of 4, without an overflow, from 128 on."""
    step = made(
        backend, [f"precision.loss_scale={{initial: 128, growth_steps: {growth_steps}}}", "ops.step.accumulate=4"]
    )
    found = []
    for _ in range(STEPS):
        give(step, 1.0)
        found.append(step.report.scale_after)
    return found


@pytest.mark.needs("torch")
def test_an_interval_times_the_window_is_what_torch_counts(backend: str) -> None:
    import torch

    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    found = []
    for number in range(1, STEPS + 1):
        scaler.scale(parameter.sum() / WINDOW).backward()
        if number % WINDOW == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        found.append(scaler.get_scale())
    assert found[-1] == 512
    assert windows(backend, 2 * WINDOW) == found


@pytest.mark.needs("tensorflow")
def test_steps_of_a_window_count_as_those_of_keras_do(backend: str) -> None:
    import keras
    import tensorflow as tf

    inner = keras.optimizers.SGD(1.0, gradient_accumulation_steps=WINDOW)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=128.0, dynamic_growth_steps=2)
    variable = keras.Variable([1.0, 2.0])
    optimizer.build([variable])
    found = []
    for _ in range(STEPS):
        optimizer.apply([tf.ones(2) * optimizer.dynamic_scale], [variable])
        found.append(float(optimizer.dynamic_scale))
    assert found[-1] == 32768
    assert windows(backend, 2) == found


def test_too_many_steps_in_a_row_end_the_run(backend: str) -> None:
    step = made(backend, ["precision.loss_scale={max_consecutive_skips: 2}"])
    for slope in (INF, INF, 1.0, INF, INF):
        give(step, slope)
    with pytest.raises(SpecError, match=r"GS282.*3 steps in a row"):
        give(step, INF)

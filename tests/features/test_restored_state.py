"""A checkpoint restores state but no hyper-parameters: the spec's learning rate stays, a difference is reported."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.features.steps import build_step, weights
from tests.features.test_optimizer_access import SPEC

pytestmark = pytest.mark.row("C10")

MOMENTUM = ["models.w.optimizer.momentum=0.5"]
"""With a slope of 1 the momentum is 1, then 1.5, then 1.75."""


def test_load_keeps_the_rate_of_the_spec_and_says_that_it_was_another(backend: str, tmp_path: Path) -> None:
    first = build_step(SPEC, backend, MOMENTUM)
    first({})
    first.save(tmp_path / "saved")
    second = build_step(SPEC, backend, [*MOMENTUM, "models.w.optimizer.lr=0.1"])
    with pytest.warns(UserWarning, match=r"no hyper-parameters: `lr` of optimizer 'w' was 0.5, and is 0.1"):
        second.load(tmp_path / "saved")
    second({})
    assert np.allclose(weights(second)["w.value"], 1 - 0.5 - 0.1 * 1.5)  # the momentum is restored, the rate is not


def test_a_rate_that_was_set_by_hand_is_not_restored_and_that_is_told(backend: str, tmp_path: Path) -> None:
    first = build_step(SPEC, backend)
    first.optimizers["w"].learning_rate = 0.125
    first({})
    first.save(tmp_path / "saved")
    second = build_step(SPEC, backend)
    with pytest.warns(UserWarning, match=r"`lr` of optimizer 'w' was 0.125 \(set by hand\), and is 0.5"):
        second.load(tmp_path / "saved")
    assert second.optimizers["w"].learning_rate == 0.5
    assert weights(second)["w.value"].tolist() == [0.875, 0.875]


@pytest.mark.parametrize("rule", ["sgd", "rmsprop"])
def test_a_rate_set_before_load_stays_set(rule: str, backend: str, tmp_path: Path) -> None:
    first = build_step(SPEC, backend, [f"models.w.optimizer.name={rule}"])
    first({})
    first.save(tmp_path / "saved")
    first.optimizers["w"].learning_rate = 0.25
    with pytest.warns(UserWarning, match=r"was 0.5, and is 0.25 \(set by hand\)"):
        first.load(tmp_path / "saved")
    assert first.optimizers["w"].learning_rate == 0.25


def test_nothing_is_told_where_nothing_differs(backend: str, tmp_path: Path) -> None:
    first = build_step(SPEC, backend, ["models.w.optimizer.lr={schedule: cosine, from: 1, to: 0, over: 9}"])
    first({})
    first.save(tmp_path / "saved")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first.load(tmp_path / "saved")


def test_the_state_of_one_rule_with_a_rate_set_by_hand_is_that_of_any_other(backend: str) -> None:
    first, second = (build_step(SPEC, backend, ["models.w.optimizer.name=rmsprop"]) for _ in range(2))
    first.optimizers["w"].learning_rate = 0.5
    first({})
    second({})
    assert first.state().counters == second.state().counters


SETTINGS = """
graphspec: 1
name: settings
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 2}], optimizer: sgd, groups: [{match: bias, lr_scale: 2.0}], regularizer: {l2: 0.1}}
  slow: {like: net}
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, x]}
  step: {update: net, loss: cost, clip: {norm: 1.0}, constraint: {max_norm: 2.0}}
  average: {ema: net, into: slow, decay: 0.9}
precision: {loss_scale: {initial: 8.0, growth_steps: 5}}
"""
OTHERWISE = {
    "models.net.groups.0.lr_scale=3.0": "`models.net.groups.0.lr_scale` was 2.0, and is 3.0",
    "models.net.groups.0.weight_decay=0.5": "`models.net.groups.0.weight_decay` was nothing, and is 0.5",
    "models.net.regularizer.l2=0.2": "`models.net.regularizer.0.l2` was 0.1, and is 0.2",
    "ops.step.constraint.max_norm=1.0": "`ops.step.constraint.0.max_norm` was 2.0, and is 1.0",
    "ops.step.clip.norm=0.5": "`ops.step.clip.norm` was 1.0, and is 0.5",
    "ops.average.decay=0.8": "`ops.average.decay` was 0.9, and is 0.8",
    "precision.loss_scale.growth_steps=6": "`precision.loss_scale.growth_steps` was 5, and is 6",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("changed", OTHERWISE)
def test_what_stands_beside_the_optimizers_is_the_specs_too_and_a_difference_is_told(
    changed: str, backend: str, tmp_path: Path
) -> None:
    build_step(SETTINGS, backend).save(tmp_path / "saved")
    with pytest.warns(UserWarning, match="load restores") as told:
        build_step(SETTINGS, backend, [changed]).load(tmp_path / "saved")
    assert [str(one.message) for one in told] == [f"load restores no hyper-parameters: {OTHERWISE[changed]}"]

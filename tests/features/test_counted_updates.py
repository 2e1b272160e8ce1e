"""Updates that an overflow may skip: no number of steps stands for them."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load

SPEC = """graphspec: 1
name: counted
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: 1}], optimizer: sgd}
  b: {layers: [{linear: 1}], optimizer: sgd}
  slow: {like: a}
ops:
  one: {forward: a, inputs: x}
  other: {forward: b, inputs: x}
  fit: {loss: mse, inputs: [one, 0.0]}
  fit_other: {loss: mse, inputs: [other, 0.0]}
  step: {update: a, loss: fit}
  step_other: {update: b, loss: fit_other}
  follow: {ema: a, into: slow, decay: 0.9}
"""
SCALED = "precision={loss_scale: 8}"
TIMED = (
    "ops.step.until=3 updates",
    "ops.follow.start=3 updates",
    "ops.follow.until=3 updates",
    "models.a.groups=[{match: weight, frozen: {until: 3 updates}}]",
)


@pytest.mark.parametrize("setting", TIMED)
@pytest.mark.parametrize("cause", [SCALED, "ops.step.on_overflow=own"])
def test_moments_in_updates_that_may_be_skipped_are_refused(setting, cause):
    with pytest.raises(SpecError, match=r"E-PACE.*3 updates.*'step' is skipped in steps whose gradients"):
        compile_step(load(SPEC, [setting, cause]))


@pytest.mark.parametrize("setting", TIMED)
def test_they_are_counted_where_nothing_is_skipped(setting):
    steps = setting.replace("updates", "steps")
    modes = [compile_step(load(SPEC, [each])).program.modes for each in (setting, steps)]
    assert [mode.gates for mode in modes[0]] == [mode.gates for mode in modes[1]]
    compile_step(load(SPEC, [setting, SCALED, "ops.step.on_overflow=apply"]))
    compile_step(load(SPEC, [steps, SCALED]))

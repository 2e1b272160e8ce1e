"""The fingerprint of a plan: the same for the same step, another for another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec import load
from graphspec.write.render import render
from runtime.train.run_folder import fingerprint

GAN = Path(__file__).resolve().parents[3] / "examples" / "gan-digits" / "gan-digits.yaml"
SAME = [
    "name=other",
    "vars.lr=5e-4",
    "vars.noise=0.1",
    "ops.d_real.inputs.1=1.0",
    "ops.average.decay=0.9",
    "ops.step_d.doc=a remark",
    "run.steps=7",
    "data.train.batch=32",
    "seed=3",
]
OTHER = [
    "ops.judged.after=[]",
    "ops.judged.inputs=fake",
    "ops.d_real.loss=mse",
    "models.generator.optimizer={name: sgd}",
    "ops.samples.forward=generator",
    "models.discriminator={class: zoo:Net, optimizer: adam}",
    "ops.step_g.every=2",
]


def of(*assignments):
    return fingerprint(compile_step(load(GAN, assignments)))


def test_it_is_a_sha256_that_stays():
    assert re.fullmatch("[0-9a-f]{64}", of())
    assert of() == of() == fingerprint(compile_step(load(render(load(GAN)))))


@pytest.mark.parametrize("assignment", SAME)
def test_numbers_and_remarks_leave_it_as_it_is(assignment):
    assert of(assignment) == of()


@pytest.mark.parametrize("assignment", OTHER)
def test_another_step_has_another(assignment):
    assert of(assignment) != of()


STATE = """
graphspec: 1
name: kept
state: {center: {shape: [%s], init: %s}}
ops:
  next: {call: mul, inputs: [center, 0.5]}
  move: {assign: center, value: next}
outputs: [center]
"""


def test_a_state_of_another_size_is_another_step_and_one_of_another_beginning_is_not():
    found = [fingerprint(compile_step(load(STATE % each))) for each in ((3, 1.0), (3, "normal"), (4, 1.0))]
    assert found[0] == found[1] != found[2]

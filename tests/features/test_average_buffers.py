"""Buffers are averaged, copied or left alone, floating and whole ones apart; parameters are chosen by their names."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("E4")

SPEC = """
graphspec: 1
name: counted
inputs: {x: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 3}, {batch_norm: {momentum: 0.5}}, {linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: net, inputs: x}
  loss: {call: mean, inputs: out}
  step: {update: net, loss: loss}
  average: {ema: net, decay: 0.75, FIELDS}
outputs: [loss]
"""
BATCH = {"x": np.random.default_rng(3).normal(size=(4, 2))}
FLOATS = ("1.running_mean", "1.running_var")


def expect(policy: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return a buffer after a policy."""
    return {"copy": new, "average": 0.75 * old + 0.25 * new, "ignore": old}[policy]


@pytest.mark.parametrize(
    ("fields", "floats", "others"),
    [
        ("buffers: copy", "copy", "copy"),
        ("buffers: average", "average", "copy"),
        ("buffers: ignore", "ignore", "ignore"),
        ("float_buffers: average", "average", "copy"),
        ("float_buffers: average, int_buffers: ignore", "average", "ignore"),
        ("float_buffers: copy, int_buffers: ignore", "copy", "ignore"),
        ("float_buffers: ignore, int_buffers: copy", "ignore", "copy"),
    ],
)
def test_floating_and_whole_buffers_are_treated_as_they_say(
    fields: str, floats: str, others: str, backend: str
) -> None:
    step = build_step(SPEC.replace("FIELDS", fields), backend)
    for _ in range(3):
        before = weights(step)
        step(BATCH)
        after = weights(step)
        for name in FLOATS:
            wanted = expect(floats, before[f"average.{name}"], after[f"net.{name}"])
            assert np.allclose(after[f"average.{name}"], wanted, rtol=1e-12, atol=0)
        count = "1.num_batches_tracked"
        if f"net.{count}" in after:
            wanted = expect(others, before[f"average.{count}"], after[f"net.{count}"])
            assert after[f"average.{count}"] == wanted
            assert after[f"average.{count}"].dtype == np.int64


@pytest.mark.parametrize(
    ("fields", "averaged"),
    [
        ("match: weight$", ("0.weight", "1.weight", "2.weight")),
        ("exclude: weight$", ("0.bias", "1.bias", "2.bias")),
        ("match: '^[02]', exclude: bias", ("0.weight", "2.weight")),
    ],
)
def test_what_is_not_chosen_is_copied(fields: str, averaged: tuple[str, ...], backend: str) -> None:
    """ema-pytorch copies what is named in `param_or_buffer_names_no_ema`, diffusers what needs no gradient."""
    step = build_step(SPEC.replace("FIELDS", f"buffers: copy, {fields}"), backend)
    step(BATCH)
    before = weights(step)
    step(BATCH)
    after = weights(step)
    for name in (f"{layer}.{part}" for layer in range(3) for part in ("weight", "bias")):
        policy = "average" if name in averaged else "copy"
        wanted = expect(policy, before[f"average.{name}"], after[f"net.{name}"])
        assert np.allclose(after[f"average.{name}"], wanted, rtol=1e-12, atol=1e-15), name


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("int_buffers: copy", "GS053.*`int_buffers` goes with `float_buffers`"),
        ("buffers: copy, float_buffers: copy", "GS053.*`buffers` or `float_buffers`, found both"),
        ("float_buffers: copy, int_buffers: average", "GS043.*'average' is not allowed"),
        ("buffers: copy, match: weights", "E-MATCH.*no parameter of 'net' fits 'weights'"),
        ("buffers: copy, exclude: '('", "GS044.*expected a regular expression"),
        ("match: weight", "E-BUFFERS.*does not say what happens to them"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        compile_step(load(SPEC.replace("FIELDS", fields)))

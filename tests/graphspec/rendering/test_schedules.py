"""A schedule with nothing but what must be written is refused where it is read, or its rendering is read again.

Tried with every kind of schedule in every number that takes one, those of the library's functions among them.
"""

from __future__ import annotations

import pytest

from graphspec import SpecError, load
from graphspec.declare.library import FUNCTIONS
from graphspec.write.render import render

SPEC = """
graphspec: 1
name: numbers
inputs: {x: {shape: [batch, 4]}, label: {shape: [batch], dtype: int64}}
models:
  net: {layers: [{linear: 4}], optimizer: OPTIMIZER, groups: [{match: bias, lr_scale: 0.5}], regularizer: {l2: 0.1}}
  slow: {like: net}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, x]}
  slope: {gradient: fit, wrt: net}
  step: {update: net, gradients: slope, clip: {norm: 1.0}, constraint: {max_norm: 1.0}}
  average: {ema: net, into: slow, decay: 0.9}
"""
CURVES = {
    "constant": "{schedule: constant, value: 0.5}",
    "zero": "{schedule: constant, value: 0}",
    "linear": "{schedule: linear, from: 0.5, over: 9}",
    "cosine": "{schedule: cosine, from: 0.5, over: 9}",
    "polynomial": "{schedule: polynomial, from: 0.5, over: 9}",
    "exponential": "{schedule: exponential, from: 0.5, rate: 0.5}",
    "step": "{schedule: step, from: 0.5, factor: 0.5, every: 3}",
    "stop": "{schedule: step, from: 0.5, factor: 0, every: 3}",
    "warmup": "{schedule: warmup, to: 0.5, over: 9}",
    "piecewise": "{schedule: piecewise, at: {0: 0.5, 9: 0.25}}",
    "join": "{schedule: join, parts: [{schedule: warmup, to: 0.5, over: 3}, {schedule: cosine, from: 0.5, over: 9}]}",
}
FIELDS = {
    "ops.step.clip.norm": False,
    "ops.step.clip={value: CURVE}": False,
    "ops.step.clip={agc: CURVE}": False,
    "ops.step.clip.eps": True,
    "ops.step.constraint.max_norm": False,
    "ops.step.constraint={clip: [-1.0, CURVE]}": True,
    "models.net.regularizer.l2": True,
    "models.net.regularizer={l1: CURVE}": True,
    "models.net.groups.0.lr_scale": True,
    "models.net.groups.0.weight_decay": True,
    "models.net.optimizer.lr": True,
    "models.net.optimizer.weight_decay": True,
    "ops.average.decay": True,
    "ops.average={ema: net, into: slow, tau: CURVE}": True,
    "ops.fit.weight": True,
}
"""Every number of the language that takes a schedule, and whether it may be 0; a `decay` not for want of a `to`."""
VANISHING = ("zero", "linear", "cosine", "polynomial", "stop", "warmup", "join")


def is_read_again(assignment: str, optimizer: str = "{name: adamw, lr: 0.1}") -> bool:
    """Return whether a spec with a number is read, and what it renders to again, to the same bytes."""
    try:
        spec = load(SPEC.replace("OPTIMIZER", optimizer), [assignment])
    except SpecError as error:
        others = [each for each in error.diagnostics if each.code not in ("GS044", "GS053", "GS113")]
        if others:  # the test itself is wrong
            raise
        return False
    rendered = render(spec)
    assert render(load(rendered)) == rendered
    return True


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("curve", CURVES)
def test_a_schedule_that_is_read_renders_to_one_that_is_read(field, curve):
    written = field.replace("CURVE", CURVES[curve]) if "CURVE" in field else f"{field}={CURVES[curve]}"
    ends_in_a_copy = field == "ops.average.decay" and curve in ("linear", "cosine", "polynomial")
    assert is_read_again(written) == (not ends_in_a_copy and (FIELDS[field] or curve not in VANISHING))


@pytest.mark.parametrize("compat", ["torch", "tf_keras"])
@pytest.mark.parametrize("kind", ["warmup, over: 9", "cosine, over: 9", "step, factor: 0.5, every: 3", "constant"])
def test_so_does_one_that_leaves_the_rate_to_the_optimizer(kind, compat):
    spec = load(SPEC.replace("OPTIMIZER", f"{{name: sgd, lr: {{schedule: {kind}}}}}"), [f"compat={compat}"])
    again = load(render(spec))
    assert render(again) == render(spec)
    rates = [each.models["net"].optimizer.options["lr"].fields for each in (spec, again)]
    assert rates[0] == rates[1]


@pytest.mark.parametrize("curve", CURVES)
def test_so_is_one_in_an_option_of_a_function(curve):
    for kind, known in FUNCTIONS.items():
        for name, signature in known.items():
            operands = ", ".join(["out"] * max(1, len(signature.operands)))
            options = [each for each in signature.options if each.kind == "number"]
            needed = {each.name: "0.5" if each.kind == "number" else "1" for each in signature.options if each.required}
            for option in options:
                args = ", ".join(f"{key}: {value}" for key, value in {**needed, option.name: CURVES[curve]}.items())
                shape = (
                    "shape: [2]" if kind == "random" else f"inputs: [{'slope' if kind == 'transform' else operands}]"
                )
                written = is_read_again(f"ops.more={{{kind}: {name}, {shape}, args: {{{args}}}}}")
                if option.above == 0.0:
                    assert written == (curve not in VANISHING), (kind, name, option.name)

"""Precision: names of types and fields as frameworks write them, what is refused and where, what each model has."""

from __future__ import annotations

import pytest

from graphspec import dump, load
from graphspec.declare.graph import GraphSpec
from graphspec.declare.precision import LossScaleSpec

SMALL = """graphspec: 1
name: small
{precision}
inputs: {{x: {{shape: [batch, 4]}}}}
models:
  net: {{layers: [{{linear: 4}}]{own}, optimizer: {{name: sgd, lr: 0.1}}}}
  slow: {{like: net}}
  other: {{like: slow, precision: float32}}
ops:
  out: {{forward: net, inputs: x}}
  loss: {{loss: mse, inputs: [out, 0.0]}}
  step: {{update: net, loss: loss}}
  shadow: {{ema: net, decay: 0.9}}
"""


def read(precision: str, own: str = "") -> GraphSpec:
    """Return the small spec with a precision, and one of its model."""
    return load(SMALL.format(precision=f"precision: {precision}", own=own and f", precision: {own}"))


def scale_of(written: str) -> LossScaleSpec | None:
    """Return the loss scale of a spec that says it so."""
    return read(f"{{loss_scale: {written}}}").loss_scale


@pytest.mark.parametrize(
    ("written", "compute"),
    [
        ("float16", "float16"),
        ("half", "float16"),
        ("fp16", "float16"),
        ("mixed_float16", "float16"),
        ("torch.float16", "float16"),
        ("torch.half", "float16"),
        ("tf.float16", "float16"),
        ("bf16", "bfloat16"),
        ("torch.bfloat16", "bfloat16"),
        ("mixed_bfloat16", "bfloat16"),
        ("fp32", "float32"),
        ("{compute: half}", "float16"),
        ("{params: torch.float32, compute: tf.bfloat16}", "bfloat16"),
        ("{}", "float32"),
    ],
)
def test_types_have_the_names_that_frameworks_give_them(written: str, compute: str) -> None:
    spec = read(written)
    assert spec.precision is not None
    assert spec.precision.compute == compute
    assert spec.precision.params == "float32"


def test_a_model_goes_before_the_document_and_what_is_like_it_follows_it() -> None:
    found = read("float16", own="bf16")
    assert [found.compute(name) for name in ("net", "slow", "other")] == ["bfloat16", "bfloat16", "float32"]
    assert [read("float16").compute(name) for name in ("net", "slow", "other")] == ["float16", "float16", "float32"]


def test_an_average_computes_as_its_source() -> None:
    assert read("float32", own="half").compute("shadow") == "float16"
    assert load(SMALL.format(precision="", own="")).compute("shadow") == "float32"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("dynamic", {}),
        ("8", {"kind": "fixed", "initial": 8.0}),
        ("0.5", {"kind": "fixed", "initial": 0.5}),
        ("{init_scale: 4, growth_interval: 3}", {"initial": 4.0, "growth_steps": 3}),
        ("{initial_scale: 4, dynamic_growth_steps: 3}", {"initial": 4.0, "growth_steps": 3}),
        (
            "{initial_loss_scale: 4, increment_period: 3, multiplier: 3.0}",
            {"initial": 4.0, "growth_steps": 3, "growth_factor": 3.0, "backoff_factor": 1 / 3},
        ),
        ("{multiplier: 4, backoff_factor: 0.5}", {"growth_factor": 4.0, "backoff_factor": 0.5}),
        ("{growth_factor: 4}", {"growth_factor": 4.0, "backoff_factor": 0.5}),
        ("{kind: fixed, initial: 128, max_consecutive_skips: 5}", {"kind": "fixed", "max_consecutive_skips": 5}),
    ],
)
def test_a_loss_scale_has_the_names_that_frameworks_give_it(written: str, expected: dict[str, object]) -> None:
    found = scale_of(written)
    assert found is not None
    assert {name: getattr(found, name) for name in expected} == expected


def test_losses_are_scaled_where_something_computes_in_float16_and_nobody_says_otherwise() -> None:
    assert read("bfloat16").loss_scale is None
    assert read("float32", own="float16").loss_scale == read("float16").loss_scale == LossScaleSpec()
    assert read("{compute: float16, loss_scale: none}").loss_scale is None
    assert scale_of("dynamic") == LossScaleSpec()


@pytest.mark.parametrize(
    ("written", "code", "message"),
    [
        ("«float64»", "GS043", "'float64' is not allowed"),
        ("{compute: «float8»}", "GS043", "'float8' is not allowed"),
        ("{params: «half»}", "GS043", "parameters are float32 in every step, not float16"),
        ("«16»", "GS041", "expected the name of a type, or a mapping, as `precision`"),
        ("{«compte»: half}", "GS040", "unknown key 'compte'"),
        ("{loss_scale: «sometimes»}", "GS043", "'sometimes' is not allowed"),
        ("{loss_scale: «true»}", "GS041", "expected `dynamic`, `none`, a number or a mapping as `loss_scale`"),
        ("{loss_scale: «0»}", "GS044", "greater than 0"),
        ("{loss_scale: {kind: «slow»}}", "GS043", "'slow' is not allowed"),
        ("{loss_scale: {init_scale: 4, «initial»: 3}}", "GS053", "`initial` repeats another key"),
        ("{loss_scale: {initial: «0.5»}}", "GS053", "the scale starts at 0.5, below `min_scale: 1`"),
        ("{loss_scale: {growth_factor: «1»}}", "GS044", "greater than 1"),
        ("{loss_scale: {backoff_factor: «1.0»}}", "GS044", "less than 1"),
        ("{loss_scale: {growth_steps: «0»}}", "GS044", "number of at least 1"),
        ("{loss_scale: {kind: fixed, «growth_steps»: 3}}", "GS056", "a fixed scale does not change"),
        ("{loss_scale: «1e39»}", "GS044", "at most 3.40282346638529e+38"),
        ("{loss_scale: «1e-50»}", "GS044", "at least 1.17549435082229e-38"),
        ("{loss_scale: {min_scale: «1e-60»}}", "GS044", "at least 1.17549435082229e-38"),
        ("{loss_scale: {kind: none, «initial»: 4}}", "GS056", "there is none"),
        ("{loss_scale: {kind: none, «min_scale»: 3}}", "GS056", "a none scale does not change"),
    ],
)
def test_what_is_no_precision_is_refused_where_it_is_written(find, small, written, code, message) -> None:
    found = find(small(more=f"precision: {written}\n"))
    assert found.codes == (code,)
    assert found.places == found.marks
    assert message in found.diagnostics[0].message


@pytest.mark.parametrize("written", ["half", "{compute: bf16, loss_scale: 8}", "{loss_scale: {init_scale: 4}}", "fp32"])
def test_a_rendered_precision_renders_to_the_same_bytes(written: str) -> None:
    spec = read(written, own="tf.bfloat16")
    text = dump(spec)
    again = load(text)
    assert dump(again) == text
    assert (again.precision, again.loss_scale) == (spec.precision, spec.loss_scale)
    assert again.models["net"].precision == "bfloat16"

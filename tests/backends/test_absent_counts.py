"""Losses with counts of their own beside terms that some steps do without, and behind factors: sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import Pace, compile_step
from graphspec import SpecError, load
from runtime import Step, StepError, build
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.needs("torch")  # its losses stand in a module that imports it
BACKENDS = pytest.mark.parametrize("backend", ["torch", "tensorflow"])
KEPT = "{torch: 'tests.features.masks:kept', tensorflow: 'tests.features.masks:kept_tf'}"
SPEC = f"""
graphspec: 1
name: absent
inputs: {{x: {{shape: [batch, 3]}}, mask: {{shape: [batch, 1]}}, w: {{shape: []}}}}
models:
  net: {{layers: [{{linear: {{out: 1, bias: false}}}}], optimizer: {{name: sgd, lr: 1.0}}}}
ops:
  y: {{forward: net, inputs: x}}
  fit: {{loss: {KEPT}, inputs: [y, mask]}}
  all: {{call: mean, inputs: y}}
  half: {{call: mul, inputs: [all, 0.5]}}
  cost: {{call: add, inputs: [half, fit]}}
  step: {{update: net, loss: cost, accumulate: 3}}
outputs: [half]
"""
ROWS = ((2, 1, 1.0), (4, 2, 2.0), (3, 3, 4.0))
"""Of each batch: its rows, how many of them are kept, and what all elements are: the slope of either mean."""
ALL = (2 * 1 + 4 * 2 + 3 * 4) / 9
START = np.array([[1.0, 2.0, 3.0]])


def batch_of(rows: int, kept: int, value: float) -> dict[str, np.ndarray]:
    """Return a batch whose elements are all alike; the first rows are kept."""
    mask = (np.arange(rows) < kept).astype(float).reshape(-1, 1)
    return {"x": np.full((rows, 3), value), "mask": mask, "w": np.array(3.0)}


BATCHES = [batch_of(*each) for each in ROWS]
WHOLE = {name: np.concatenate([batch[name] for batch in BATCHES]) for name in ("x", "mask")} | {"w": np.array(3.0)}


def make(backend: str, settings: tuple[str, ...] = (), text: str = SPEC) -> Step:
    """Return a step at known weights."""
    step = build_step(text, backend, settings)
    set_weights(step, {"net.0.weight": START})
    return step


def move(step: Step, batches: list[dict[str, np.ndarray]]) -> float:
    """Take steps; return how far the weights went, all of them alike."""
    for batch in batches:
        step(batch)
    moved = (START - weights(step)["net.0.weight"]).ravel()
    assert np.allclose(moved, moved[0], rtol=0, atol=1e-12)
    return float(moved[0])


@pytest.mark.sample(3)
@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        ("start=2", (2 * 2 + 3 * 4) / 5 * 7 / 9),
        ("until=2", (1 * 1 + 2 * 2) / 3 * 6 / 9),
        ("every=2", 2 * (2 * 2) / 2 * 4 / 9),
        ("every=3", 3 * (3 * 4) / 3 * 3 / 9),
        ("start=4", 0.0),
    ],
)
def test_a_mean_stands_for_the_rows_of_the_steps_that_it_is_there_in(
    clock: str, expected: float, parts: int, backend: str
) -> None:
    step = make(backend, (f"ops.fit.{clock}", f"micro_batches={parts}"))
    assert move(step, BATCHES) == pytest.approx(expected + 0.5 * ALL, abs=1e-12)


@BACKENDS
def test_the_next_window_begins_anew(backend: str) -> None:
    step = make(backend, ("ops.fit.start=4",))
    first = move(step, BATCHES)
    assert move(step, BATCHES) - first == pytest.approx((1 + 4 + 12) / 6 + 0.5 * ALL, abs=1e-12)


@BACKENDS
def test_not_multiplied_it_weighs_as_much_as_it_is_there(backend: str) -> None:
    step = make(backend, ("ops.fit.every=2", "ops.fit.lazy=none"))
    assert move(step, BATCHES) == pytest.approx(2 * 4 / 9 + 0.5 * ALL, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
def test_what_counts_by_rows_may_be_what_is_absent(parts: int, backend: str) -> None:
    text = SPEC.replace("{call: mean, inputs: y}", "{loss: wasserstein, inputs: y, start: 2}").replace(
        "half, fit", "all, fit"
    )
    step = make(
        backend,
        (f"micro_batches={parts}",),
        text.replace("  half: {call: mul, inputs: [all, 0.5]}\n", "").replace("[half]", "[y]"),
    )
    assert move(step, BATCHES) == pytest.approx((1 + 4 + 12) / 6 + (8 + 12) / 9, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("bad", [0, 1])
def test_a_step_that_is_left_out_has_no_rows(bad: int, backend: str) -> None:
    settings = ("ops.fit.start=2", "ops.step.on_overflow=own", "ops.step.accumulate={steps: 3, on_nonfinite: drop}")
    batches = [{**batch, "x": batch["x"] * np.inf} if at == bad else batch for at, batch in enumerate(BATCHES)]
    expected = (16 / 5) + 0.5 * 20 / 7 if bad == 0 else 4 * 3 / 5 + 0.5 * 14 / 5
    step = make(backend, settings)
    assert move(step, batches) == pytest.approx(expected, abs=1e-12)
    assert step.report.fired == ("step",)


@BACKENDS
@pytest.mark.parametrize("other", ["torch", "tensorflow"])
def test_a_checkpoint_amid_a_window_knows_what_was_absent(other: str, backend: str) -> None:
    begun, ended = make(backend, ("ops.fit.start=3",)), make(other, ("ops.fit.start=3",))
    for batch in BATCHES[:2]:
        begun(batch)
    ended.restore(begun.state())
    assert move(ended, BATCHES[2:]) == pytest.approx(4 * 3 / 9 + 0.5 * ALL, abs=1e-12)


def with_more(missing: str, clock: str) -> str:
    """Return the spec with a second model, which only the loss with the count reaches."""
    text = SPEC.replace("ops:\n", "  more: {like: net, optimizer: {name: sgd, lr: 1.0, weight_decay: 0.5}}\nops:\n")
    text = text.replace("  fit: {", "  z: {forward: more, inputs: x}\n  fit: {").replace(
        "[y, mask]}", f"[z, mask], {clock}}}"
    )
    return text.replace("{update: net,", f"{{update: [net, more], missing: {missing},")


@pytest.mark.sample(3)
@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
def test_parameters_of_an_absent_term_are_skipped_or_take_zeros(parts: int, backend: str) -> None:
    for missing, clock, expected in (
        ("skip", "start: 2", 16 / 5 * 7 / 9 + 0.5),
        ("zero", "start: 2", 16 / 5 * 7 / 9 + 0.5),
        ("skip", "start: 4", 0.0),
        ("zero", "start: 4", 0.5),
    ):
        step = make(backend, (f"micro_batches={parts}",), with_more(missing, clock))
        set_weights(step, {"more.0.weight": np.ones((1, 3))})
        assert move(step, BATCHES) == pytest.approx(0.5 * ALL, abs=1e-12)
        assert np.allclose(1 - weights(step)["more.0.weight"], expected, rtol=0, atol=1e-12), missing


@BACKENDS
def test_a_parameter_that_nothing_reaches_in_a_step_is_told_in_that_step(backend: str) -> None:
    step = make(backend, (), with_more("error", "every: 1"))
    assert move(step, BATCHES) == pytest.approx(0.5 * ALL, abs=1e-12)
    with pytest.raises(StepError, match=r"(?s)GS212.*'step' has no gradient of more.0.weight"):
        make(backend, (), with_more("error", "start: 2"))(BATCHES[0])


@BACKENDS
@pytest.mark.parametrize("settings", [(), ("micro_batches=2",), ("micro_batches=2", "ops.step.accumulate=null")])
def test_terms_that_are_all_absent_from_a_step_are_no_loss(settings: tuple[str, ...], backend: str) -> None:
    text = SPEC.replace("  cost:", "  late: {loss: wasserstein, inputs: y, CLOCK}\n  cost:").replace(
        "half, fit", "late, fit"
    )
    with pytest.raises(SpecError, match=r"E-ABSENT.*'step' uses 'cost'"):
        compile_step(load(text.replace("CLOCK", "start: 2"), ("ops.fit.start=2", *settings)), backend)
    step = make(backend, ("ops.fit.start=2", *settings), text.replace("CLOCK", "until: 1"))
    expected = 16 / 5 * 7 / 9 + 2 / 9 if "ops.step.accumulate=null" not in settings else 1 + 2 + 4
    assert move(step, BATCHES) == pytest.approx(expected, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize(
    ("settings", "batches"), [((), BATCHES), (("ops.step.accumulate=null", "micro_batches=3"), [WHOLE])]
)
def test_gradients_of_sums_are_multiplied_with_what_is_wanted(settings, batches, backend: str) -> None:
    slopes = "  slope: {gradient: cost, wrt: net, grad_outputs: w}\n  step: {update: net, gradients: slope,"
    step = make(backend, settings, SPEC.replace("  step: {update: net, loss: cost,", slopes))
    assert move(step, batches) == pytest.approx(3 * (17 / 6 + 0.5 * ALL), abs=1e-12)
    assert not [each for each in step.plan.warnings if each.code == "W-DEAD"]


TUNED = (
    SPEC.replace(
        "ops:\n",
        "  scale: {parameter: {shape: [], init: 0.5}, optimizer: {name: sgd, lr: 1.0}}\nops:\n  s: {forward: scale}\n",
    )
    .replace("inputs: [half, fit]}", "inputs: [half, scaled]}\n  scaled: {call: mul, inputs: [fit, s]}")
    .replace("update: net", "update: [net, scale]")
)


@BACKENDS
@pytest.mark.parametrize("parts", [1, 3])
def test_a_factor_that_does_not_depend_on_the_batch_keeps_terms_apart_in_micro_batches(
    parts: int, backend: str
) -> None:
    step = make(backend, ("ops.step.accumulate=null", f"micro_batches={parts}"), TUNED)
    assert move(step, [WHOLE]) == pytest.approx(0.5 * 17 / 6 + 0.5 * ALL, abs=1e-12)
    slope = (1 * 6 + 2 * 12 + 3 * 24) / 6  # of the product by the factor: the mean of what is kept
    assert weights(step)["scale.value"] == pytest.approx(0.5 - slope, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
def test_over_steps_such_a_product_counts_by_rows(parts: int, backend: str) -> None:
    own = "  step: {update"
    text = TUNED.replace(own, "  both: {call: add, inputs: [cost, fit]}\n" + own).replace("loss: cost", "loss: both")
    step = make(backend, (f"micro_batches={parts}",), text)
    assert move(step, BATCHES) == pytest.approx(0.5 * ALL + 0.5 * ALL + 17 / 6, abs=1e-12)


def test_a_gradient_by_a_value_would_need_the_counts_of_parts_that_come_later() -> None:
    text = SPEC.replace(
        "  step:", "  slope: {gradient: scaled, wrt: x}\n  scaled: {call: mul, inputs: [fit, w]}\n  step:"
    )
    settings = ("micro_batches=2", "outputs=[slope]")
    whole = make("torch", (*settings[1:], "ops.step.accumulate=null"), text)
    found = whole(WHOLE)["slope"].numpy()
    assert np.allclose(found, 3 * WHOLE["mask"] / 6 * START, rtol=0, atol=1e-12)
    labels = text.replace(KEPT, "cross_entropy").replace("[y, mask]", "[y, label], args: {ignore_index: 0}")
    labels = labels.replace("w: {shape: []}", "w: {shape: []}, label: {shape: [batch], dtype: int64}")
    with pytest.raises(SpecError, match=r"E-MICRO.*the gradient of 'fit' by a value"):
        compile_step(load(labels, settings), "torch")
    with pytest.raises(StepError, match=r"GS211.*micro-batches take no gradient by a value"):
        build_step(text, "torch", settings)


@BACKENDS
def test_a_flush_leaves_what_was_frozen_in_all_steps_of_the_window(backend: str) -> None:
    groups = "groups: [{match: weight, frozen: {until: 1 steps}}], layers: [{linear: {out: 1}}]"
    text = SPEC.replace("layers: [{linear: {out: 1, bias: false}}]", groups).replace(
        "lr: 1.0", "lr: 1.0, weight_decay: 0.5"
    )
    text = text.replace(
        "update: net, loss: cost, accumulate: 3",
        "update: net, loss: cost, accumulate: {steps: 3, on_epoch_end: flush}, dataset: [a, '!b']",
    )
    plan = compile_step(load(text, ["rng=portable"]), backend, pace=Pace(epoch=2))
    step = build(plan, device="cpu", dtype="float64", allow=("tests",))
    set_weights(step, {"net.0.weight": START, "net.0.bias": np.zeros(1)})
    step(BATCHES[0], dataset="a")
    step(BATCHES[1], dataset="b")
    assert np.array_equal(weights(step)["net.0.weight"], START)
    assert weights(step)["net.0.bias"] == pytest.approx(-1.5, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
def test_a_window_of_one_step_is_none(parts: int, backend: str) -> None:
    step = make(backend, ("ops.step.accumulate=1", f"micro_batches={parts}"))
    assert move(step, [WHOLE]) == pytest.approx(17 / 6 + 0.5 * ALL, abs=1e-12)


SUMS = {
    "flat": "  cost: {call: add, inputs: [half, fit, late]}",
    "left": "  cost: {call: add, inputs: [inner, half]}\n  inner: {call: add, inputs: [fit, late]}",
    "right": "  cost: {call: add, inputs: [half, inner]}\n  inner: {call: add, inputs: [late, fit]}",
    "twice": "  cost: {call: add, inputs: [half, outer]}\n  outer: {call: mul, inputs: [inner, 1.0]}\n"
    "  inner: {call: add, inputs: [fit, late]}",
}


@pytest.mark.sample(5)
@BACKENDS
@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("parts", [1, 2])
def test_however_a_sum_is_written_it_does_without_its_lazy_terms(name: str, parts: int, backend: str) -> None:
    late = "\n  late: {loss: wasserstein, inputs: y, every: 2, lazy: none}"
    text = SPEC.replace("  cost: {call: add, inputs: [half, fit]}", f"{SUMS[name]}{late}")
    step = make(backend, (f"micro_batches={parts}",), text)
    assert move(step, BATCHES) == pytest.approx(17 / 6 + 0.5 * ALL + 4 * 2 / 9, abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("accumulate", ["null", "{steps: 2, reduce: sum}", "{steps: 2, reduce: steps}"])
def test_a_lazy_term_with_a_count_may_be_split_without_a_window(accumulate: str, backend: str) -> None:
    step = make(backend, ("ops.fit.every=2", f"ops.step.accumulate={accumulate}", "micro_batches=2"))
    share = 0.5 if "reduce: steps" in accumulate else 1.0
    assert move(step, BATCHES[:2]) == pytest.approx(share * (0.5 * 1 + 0.5 * 2 + 2 * 2), abs=1e-12)


@BACKENDS
@pytest.mark.parametrize("parts", [1, 2])
def test_products_with_rows_are_sums_over_the_batches_of_a_window(parts: int, backend: str) -> None:
    slopes = "  slope: {gradient: y, wrt: net, grad_outputs: mask}\n  step: {update: net, gradients: slope,"
    step = make(backend, (f"micro_batches={parts}",), SPEC.replace("  step: {update: net, loss: cost,", slopes))
    assert move(step, BATCHES) == pytest.approx(1 * 1 + 2 * 2 + 3 * 4, abs=1e-12)

"""A loss with a count of its own is divided by all that it counts: over steps, and over micro-batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from compiler import compile_step
from graphspec import load
from runtime.step import StepError
from tests.features import masks
from tests.features.steps import build_step, set_weights, weights

KEPT = "{torch: 'tests.features.masks:kept', tensorflow: 'tests.features.masks:kept_tf'}"
PLAIN = KEPT.replace("kept", "plain")
SPEC = f"""
graphspec: 1
name: masked
inputs: {{x: {{shape: [batch, 3]}}, mask: {{shape: [batch, 1]}}}}
models:
  net: {{layers: [{{linear: {{out: 1, bias: false}}}}], optimizer: {{name: sgd, lr: 0.1}}}}
ops:
  y: {{forward: net, inputs: x}}
  fit: {{loss: {KEPT}, inputs: [y, mask]}}
  step: {{update: net, loss: fit, accumulate: 3}}
outputs: [fit]
"""
MORE = """\
  all: {call: mean, inputs: y}
  half: {call: mul, inputs: [all, 0.5]}
  cost: {call: sub, inputs: [fit, half]}
"""
TWO = SPEC.replace("  step: {update: net, loss: fit", f"{MORE}  step: {{update: net, loss: cost")
START = np.array([[1.0, 2.0, 3.0]])
ROWS = ((2, 1, 1.0), (4, 0, 2.0), (3, 3, 4.0))
"""Of each batch: its rows, how many of them are kept, and what all elements are."""
OWN = (1 * 1.0 + 0 * 2.0 + 3 * 4.0) / 4
"""The gradient of the mean of what is kept of all three: that of their own means would be NaN."""
ALL = (2 * 1.0 + 4 * 2.0 + 3 * 4.0) / 9


def batch_of(rows: int, kept: int, value: float) -> dict[str, np.ndarray]:
    return {"x": np.full((rows, 3), value), "mask": (np.arange(rows) < kept).astype(float).reshape(-1, 1)}


BATCHES = [batch_of(*each) for each in ROWS]
WHOLE = {name: np.concatenate([batch[name] for batch in BATCHES]) for name in ("x", "mask")}
PARTS = ("ops.step.accumulate=null", "micro_batches=3")


def train(text: str, backend: str, settings: tuple[str, ...] = (), batches=BATCHES):
    step = build_step(text, backend, settings)
    set_weights(step, {"net.0.weight": START})
    outputs = [step(batch) for batch in batches]
    return step, START - weights(step)["net.0.weight"], outputs


def test_a_window_is_divided_by_all_that_it_keeps(backend: str) -> None:
    step, moved, outputs = train(SPEC, backend)
    assert np.allclose(moved, 0.1 * OWN, atol=1e-15)
    assert float(outputs[0]["fit"]) == 6.0  # of a step alone it is the mean of what that keeps
    assert np.isnan(float(outputs[1]["fit"]))
    assert any("(sum, count)" in note for note in step.notes)


def test_micro_batches_are_divided_by_all_that_they_keep(backend: str) -> None:
    _, moved, outputs = train(SPEC, backend, PARTS, [WHOLE])
    assert np.allclose(moved, 0.1 * OWN, atol=1e-15)
    assert float(outputs[0]["fit"]) == pytest.approx(6 * OWN, abs=1e-12)


def test_a_window_of_steps_in_micro_batches_is_divided_by_all_that_they_keep(backend: str) -> None:
    assert np.allclose(train(SPEC, backend, ("micro_batches=2",))[1], 0.1 * OWN, atol=1e-15)
    assert np.allclose(train(TWO, backend, ("micro_batches=2",))[1], 0.1 * (OWN - 0.5 * ALL), atol=1e-15)


@pytest.mark.parametrize(("settings", "batches"), [((), BATCHES), (PARTS, [WHOLE])], ids=["window", "parts"])
def test_terms_that_count_differently_are_each_divided_by_their_own_count(settings, batches, backend: str) -> None:
    _, moved, _ = train(TWO, backend, settings, batches)
    assert np.allclose(moved, 0.1 * (OWN - 0.5 * ALL), atol=1e-15)


@pytest.mark.parametrize(("settings", "batches"), [((), BATCHES), (PARTS, [WHOLE])], ids=["window", "parts"])
def test_a_weight_and_gradients_as_values_are_kept(settings, batches, backend: str) -> None:
    _, moved, _ = train(SPEC, backend, (*settings, "ops.fit.weight=2.0", "ops.step.clip={norm: 0.5}"), batches)
    assert np.allclose(moved, 0.1 * 0.5 / np.sqrt(3), atol=1e-12)
    given = TWO.replace("{update: net, loss: cost", "{update: net, gradients: short")
    slopes = "  slope: {gradient: cost, wrt: net}\n  short: {transform: scale, inputs: slope, args: {factor: 3.0}}\n"
    _, moved, _ = train(given.replace("  step:", f"{slopes}  step:"), backend, settings, batches)
    assert np.allclose(moved, 0.3 * (OWN - 0.5 * ALL), atol=1e-12)


@pytest.mark.parametrize(("settings", "batches"), [((), BATCHES), (PARTS, [WHOLE])], ids=["window", "parts"])
def test_what_keeps_nothing_at_all_has_a_gradient_of_zeros(settings, batches, backend: str) -> None:
    empty = [{**batch, "mask": 0 * batch["mask"]} for batch in batches]
    assert np.array_equal(train(SPEC, backend, settings, empty)[1], 0 * START)


def test_a_batch_that_is_not_finite_is_left_out_with_what_it_counts(backend: str) -> None:
    bad = {"x": np.full((2, 3), np.inf), "mask": np.ones((2, 1))}
    batches = [BATCHES[0], bad, BATCHES[2]]
    kept = ("ops.step.on_overflow=own", "ops.step.accumulate={steps: 3, on_nonfinite: drop}")
    assert np.allclose(train(SPEC, backend, kept, batches)[1], 0.1 * OWN, atol=1e-15)
    assert np.allclose(train(TWO, backend, kept, batches)[1], 0.1 * (OWN - 0.5 * 14 / 5), atol=1e-15)
    spoiled = (kept[0], "ops.step.accumulate={steps: 3, on_nonfinite: window}")
    assert np.array_equal(train(SPEC, backend, spoiled, batches)[1], 0 * START)


def test_a_window_of_finite_steps_that_keep_nothing_is_applied(backend: str) -> None:
    step, moved, _ = train(SPEC, backend, ("ops.step.on_overflow=own",), [BATCHES[1]] * 3)
    assert np.array_equal(moved, 0 * START)
    assert step.report.fired == ("step",)


def test_steps_may_count_alike_all_the_same(backend: str) -> None:
    settings = ("ops.step.accumulate={steps: 2, reduce: steps}",)
    assert np.allclose(train(SPEC, backend, settings, [BATCHES[0], BATCHES[2]])[1], 0.1 * 2.5, atol=1e-15)
    parts = (*settings, "micro_batches=2")
    assert np.allclose(train(SPEC, backend, parts, [BATCHES[0], BATCHES[2]])[1], 0.1 * 2.5, atol=1e-15)


@pytest.mark.parametrize("text", [SPEC, TWO], ids=["one", "two"])
def test_a_checkpoint_amid_a_window_has_its_counts(text: str, backend: str) -> None:
    _, moved, _ = train(text, backend)
    half, _, _ = train(text, backend, (), BATCHES[:2])
    other = build_step(text, backend)
    other.restore(half.state())
    other(BATCHES[2])
    assert np.array_equal(START - weights(other)["net.0.weight"], moved)


def test_a_window_that_counted_differently_begins_anew(backend: str) -> None:
    old, _, _ = train(SPEC.replace(KEPT, PLAIN), backend, (), BATCHES[:2])
    step = build_step(SPEC, backend)
    step.restore(old.state())
    step(BATCHES[2])
    assert np.allclose(START - weights(step)["net.0.weight"], 0.1 * 4.0, atol=1e-15)


def test_a_loss_that_is_seen_to_be_a_mean_costs_no_further_gradient(backend: str) -> None:
    text = TWO.replace(KEPT, PLAIN)
    assumed = compile_step(load(text), backend)
    assert any("may return (sum, count)" in note for note in assumed.notes)
    step, moved, _ = train(text, backend)
    functions = step.plan.program.mode("train").functions
    assert [sum(each.kind() == "gradient" for each in function.instructions) for function in functions] == [1, 1]
    assert "step.collected = step window / rows" in step.plan.text()
    assert np.allclose(moved, 0.1 * 0.5 * ALL, atol=1e-15)


def test_what_is_not_seen_is_found_out_in_every_step(backend: str) -> None:
    free = "{x: {shape: [batch, 3]}, mask: {}}"
    for loss, expected in ((KEPT, OWN - 0.5 * ALL), (PLAIN, 0.5 * ALL)):
        text = TWO.replace(KEPT, loss).replace("{x: {shape: [batch, 3]}, mask: {shape: [batch, 1]}}", free)
        step, moved, _ = train(text, backend)
        assert ".collected = step.of.fit window / elements" in step.plan.text()
        assert np.allclose(moved, 0.1 * expected, atol=1e-15)


def test_a_loss_must_return_the_same_in_every_step() -> None:
    step = build_step(SPEC.replace(KEPT, "'tests.features.masks:fickle'"), "torch")
    try:
        masks.Fickle.is_one = True
        with pytest.raises(StepError, match="the same in every step"):
            step(BATCHES[0])
    finally:
        masks.Fickle.is_one = False


def test_parameters_that_one_term_alone_reaches_are_stepped(backend: str) -> None:
    text = TWO.replace("{call: mean, inputs: y}", "{call: mean, inputs: z}").replace(
        "update: net", "update: [net, more]"
    )
    other = "  more: {like: net, optimizer: {name: sgd, lr: 0.1}}\nops:\n  z: {forward: more, inputs: x}\n"
    text = text.replace("ops:\n", other)
    step = build_step(text, backend)
    set_weights(step, {"net.0.weight": START, "more.0.weight": START})
    for batch in BATCHES:
        step(batch)
    assert np.allclose(START - weights(step)["net.0.weight"], 0.1 * OWN, atol=1e-15)
    assert np.allclose(START - weights(step)["more.0.weight"], -0.05 * ALL, atol=1e-15)


LABELS = """
graphspec: 1
name: language
inputs: {x: {shape: [batch, 4], dtype: int64}, label: {shape: [batch, 4], dtype: int64}}
models:
  net: {layers: [{embedding: {count: 7, size: 5}}, {linear: 7}], optimizer: {name: sgd, lr: 0.5}}
ops:
  y: {forward: net, inputs: x}
  fit: {loss: cross_entropy, inputs: [y, label], args: {axis: 2, ignore_index: -1, label_smoothing: 0.1}}
  step: {update: net, loss: fit, accumulate: 3}
outputs: [fit]
"""


def masked_language(kept: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    """Return batches of tokens of which some are masked: only their labels are kept."""
    rng = np.random.default_rng(5)
    found = []
    for count in kept:
        x, label = rng.integers(0, 7, (4, 4)), np.full(16, -1)
        label[rng.permutation(16)[:count]] = rng.integers(0, 7, count)
        found.append({"x": x, "label": label.reshape(4, 4)})
    return found


def by_hand(start, batches) -> dict[str, np.ndarray]:
    """Return the weights after one update of a masked language model, by one loop over all positions."""
    held = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in start.items()}
    table, weight, bias = held["net.0.weight"], held["net.1.weight"], held["net.1.bias"]
    total, count = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        for token, label in zip(batch["x"].flat, batch["label"].flat, strict=True):
            if label != -1:
                log_p = F.log_softmax(weight @ table[token] + bias, 0)
                total, count = total - 0.9 * log_p[label] - 0.1 * log_p.mean(), count + 1
    (total / count).backward()
    return {name: (value - 0.5 * value.grad).detach().numpy() for name, value in held.items()}


@pytest.mark.parametrize("parts", ["1", "3"])
def test_a_masked_language_model_learns_by_all_its_masked_tokens(parts: str, backend: str) -> None:
    batches = masked_language((1, 0, 9))
    step = build_step(LABELS, backend, (f"micro_batches={parts}",))
    start = {name: value.copy() for name, value in weights(step).items()}
    for batch in batches:
        step(batch)
    expected = by_hand(start, batches)
    for name, value in weights(step).items():
        assert np.allclose(value, expected[name], rtol=0, atol=1e-13)


def test_labels_that_are_left_out_count_for_nothing_in_one_step(backend: str) -> None:
    (batch,) = masked_language((5,))
    step = build_step(LABELS, backend, ("ops.step.accumulate=null",))
    start = {name: value.copy() for name, value in weights(step).items()}
    step(batch)
    expected = by_hand(start, [batch])
    assert all(np.allclose(value, expected[name], rtol=0, atol=1e-13) for name, value in weights(step).items())


SONGS = """
graphspec: 1
name: songs
inputs: {x: {shape: [batch, 3]}, song: {shape: [batch, length, 3]}}
models:
  net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1}}
ops:
  read: {forward: net, inputs: song}
  fit: {loss: wasserstein, inputs: read}
  step: {update: net, loss: fit, accumulate: 3}
outputs: [fit]
"""
GLANCES = """\
  seen: {forward: net, inputs: x}
  all: {loss: wasserstein, inputs: seen}
  cost: {call: sub, inputs: [fit, all]}
"""
SUNG = SONGS.replace("  step: {update: net, loss: fit", f"{GLANCES}  step: {{update: net, loss: cost")
SIZES = ((2, 1, 1.0), (4, 5, 2.0), (3, 2, 4.0))
"""Of each batch: its songs, how long they are, and what all elements are."""
EVERY = (2 * 1.0 + 20 * 2.0 + 6 * 4.0) / 28
"""The gradient of the mean over all places of all songs; over all rows it is ALL."""


def songs(dtype: type = np.float64) -> list[dict[str, np.ndarray]]:
    return [
        {"x": np.full((rows, 3), value, dtype), "song": np.full((rows, length, 3), value, dtype)}
        for rows, length, value in SIZES
    ]


@pytest.mark.parametrize("parts", ["1", "2"])
def test_a_mean_over_sequences_counts_their_elements(parts: str, backend: str) -> None:
    settings = (f"micro_batches={parts}",)
    assert np.allclose(train(SONGS, backend, settings, songs())[1], 0.1 * EVERY, atol=1e-15)
    assert np.allclose(train(SUNG, backend, settings, songs())[1], 0.1 * (EVERY - ALL), atol=1e-15)


def test_a_mean_over_sequences_takes_its_weight_and_values(backend: str) -> None:
    step, moved, outputs = train(SONGS, backend, ("ops.fit.weight=3.0",), songs())
    assert np.allclose(moved, 0.3 * EVERY, atol=1e-15)
    assert [float(each["fit"]) for each in outputs] == [3 * 6 * value for _, _, value in SIZES]
    assert "step.collected = step window / elements" in step.plan.text()


def test_a_mean_whose_shape_is_not_known_counts_its_elements(backend: str) -> None:
    text = SUNG.replace("{shape: [batch, length, 3]}", "{}")
    assert np.allclose(train(text, backend, (), songs())[1], 0.1 * (EVERY - ALL), atol=1e-15)


def test_sizes_that_are_told_count_by_rows(backend: str) -> None:
    step = build_step(SONGS.replace("length", "5"), backend)
    assert "step.collected = step window / rows" in step.plan.text()
    assert "sum_and_count" not in step.source


def test_steps_of_any_length_may_count_alike(backend: str) -> None:
    settings = ("ops.step.accumulate={steps: 3, reduce: steps}",)
    assert np.allclose(train(SONGS, backend, settings, songs())[1], 0.1 * 7 / 3, atol=1e-15)


def test_a_mean_over_sequences_stands_for_the_rows_of_the_steps_that_have_it(backend: str) -> None:
    text = SUNG.replace("call: sub", "call: add")
    late = (20 * 2.0 + 6 * 4.0) / 26 * 7 / 9
    assert np.allclose(train(text, backend, ("ops.fit.start=2",), songs())[1], 0.1 * (late + ALL), atol=1e-15)
    rows = (4 * 2.0 + 3 * 4.0) / 9
    assert np.allclose(train(text, backend, ("ops.all.start=2",), songs())[1], 0.1 * (EVERY + rows), atol=1e-15)


BEHIND = f"""
graphspec: 1
name: behind
precision: {{loss_scale: 8}}
inputs: {{x: {{shape: [batch, 3]}}, mask: {{shape: [batch, 1]}}, slope: {{shape: []}}}}
models:
  net: {{layers: [{{linear: {{out: 1, bias: false}}}}], optimizer: {{name: sgd, lr: 0.1}}}}
  v: {{parameter: {{shape: [], init: 1.0}}, optimizer: {{name: sgd, lr: 0.25}}}}
ops:
  value: {{forward: v}}
  cost: {{call: mul, inputs: [value, slope]}}
  step_v: {{update: v, loss: cost}}
  y: {{forward: net, inputs: x}}
  fit: {{loss: {KEPT}, inputs: [y, mask]}}
  slopes: {{gradient: fit, wrt: net, after: step_v}}
  step_net: {{update: net, gradients: slopes, accumulate: 2}}
"""


@pytest.mark.parametrize("settings", [(), ("ops.step_net.accumulate=null", "micro_batches=2")])
def test_a_gradient_that_counts_is_taken_behind_what_its_op_comes_after(backend: str, settings: tuple[str, ...]):
    step = build_step(BEHIND, backend, settings)
    set_weights(step, {"net.0.weight": START})
    batches = [batch_of(2, 1, 1.0), batch_of(4, 3, 2.0)] if not settings else [batch_of(4, 3, 2.0)]
    for slope, batch in zip((np.inf, 1.0), batches, strict=False):
        step({**batch, "slope": np.asarray(slope)})
    # step_v has happened when the gradient is taken: two groups, of which one skips the first step alone
    kept = [value for batch in batches for value in batch["x"][batch["mask"][:, 0] > 0, 0]]
    assert np.allclose(START - weights(step)["net.0.weight"], 0.1 * np.mean(kept), atol=1e-15)
    assert weights(step)["v.value"] == 1.0 - 0.25 * (len(batches) - 1)

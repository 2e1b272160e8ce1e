"""The gradient of a `sparse` table stays rows, each index once, through loss scale, check, window and clip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.features.steps import build_step, weights
from tests.features.tables import SPEC, Rule, batches, begin, slopes

pytestmark = pytest.mark.row("B4")

SCALE = "precision: {loss_scale: {initial: 1024.0, growth_steps: 3}}\n"
LAZY = "{name: adam, lr: 0.1, sparse: lazy}"


def apart(step: Any, rule: Rule) -> float:
    return max(float(np.abs(weights(step)[name] - value).max()) for name, value in rule.w.items())


@pytest.mark.needs("torch")
def test_rows_that_are_named_twice_are_summed_on_torch() -> None:
    import torch

    from runtime.backends.torch.library.rows import rows_of

    sparse = torch.sparse_coo_tensor([[1, 1, 0]], [[1.0], [2.0], [3.0]], (2, 1), check_invariants=True)
    (rows,) = rows_of([sparse])
    assert dict(zip(rows.ids.tolist(), rows.values.tolist(), strict=True)) == {1: [3.0], 0: [3.0]}


@pytest.mark.needs("tensorflow")
def test_rows_that_are_named_twice_are_summed_on_tensorflow() -> None:
    import tensorflow as tf

    from runtime.backends.tensorflow.library.rows import summed

    rows = summed(tf.IndexedSlices(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([1, 1, 0])))
    assert dict(zip(rows.ids.numpy().tolist(), rows.values.numpy().tolist(), strict=True)) == {1: [3.0], 0: [3.0]}


@pytest.mark.parametrize("end", ["", SCALE], ids=["plain", "scaled"])
@pytest.mark.parametrize("clip", ["{norm: 0.7}", "{norm: 0.7, per: parameter}", "{value: 0.4}"])
def test_clips_see_the_sums_of_rows_and_dense_gradients_together(clip: str, end: str, backend: str) -> None:
    step, rule = begin(LAZY, backend, f", clip: {clip}", end=end), Rule("adam", 0.1, lazy=True)
    for batch in batches(5):
        step(batch)
        found = slopes(batch)
        if "value" in clip:
            found = {name: np.clip(g, -0.4, 0.4) for name, g in found.items()}
        else:
            lengths = {name: float(np.linalg.norm(g)) for name, g in found.items()}
            whole = float(np.sqrt(sum(n * n for n in lengths.values())))
            norms = lengths if "per" in clip else dict.fromkeys(lengths, whole)
            found = {name: g * min(1.0, 0.7 / norms[name]) for name, g in found.items()}
        rule.step(found, batch["ids"])
    assert apart(step, rule) < 1e-12


@pytest.mark.parametrize("optimizer", [LAZY, "{name: adam, lr: 0.1}", "{name: adagrad, lr: 0.1}"])
def test_a_step_that_overflows_changes_nothing(optimizer: str, backend: str) -> None:
    step = begin(optimizer, backend, end=SCALE)
    first, second, third = batches(3)
    step(first)
    before = step.state()
    step({**second, "g": second["g"] * np.array([[1.0], [np.inf], [1.0], [1.0]])})
    after = step.state()
    assert all(np.array_equal(value, after.arrays[name]) for name, value in before.arrays.items())
    assert after.counters["applied"] == before.counters["applied"]
    assert after.counters["scaling"]["loss_scale"]["scale"] == 512.0
    step(third)
    name, rate = optimizer.partition("name: ")[2].partition(",")[0], 0.1
    rule = Rule(name, rate, lazy="lazy" in optimizer)
    for batch in (first, third):
        rule.step(slopes(batch), batch["ids"])
    assert apart(step, rule) < 1e-12


@pytest.mark.parametrize("overflow", [False, True])
def test_a_window_joins_the_rows_of_its_steps(overflow: bool, backend: str) -> None:
    step, rule = begin(LAZY, backend, ", accumulate: {steps: 3, reduce: sum}", end=SCALE), Rule("adam", 0.1, lazy=True)
    every = [*batches(6)]
    for at, batch in enumerate(every):
        step({**batch, "g": batch["g"] + (np.inf if overflow and at == 4 else 0.0)})
    for window in (every[:3], every[3:]):
        taken = [batch for batch in window if not (overflow and batch is every[4])]
        found = [slopes(batch) for batch in taken]
        total = {name: sum(each[name] for each in found) for name in found[0]}
        rule.step(total, np.concatenate([batch["ids"] for batch in taken]))
    assert apart(step, rule) < 1e-12


def test_micro_batches_join_rows(backend: str) -> None:
    text = SPEC.replace("\ninputs:", "\nmicro_batches: 2\ninputs:")
    step, rule = begin(LAZY, backend, text=text), Rule("adam", 0.1, lazy=True)
    for batch in batches(4):
        step(batch)
        rule.step(slopes(batch), batch["ids"])
    assert apart(step, rule) < 1e-12


READ = """
graphspec: 1
name: read
micro_batches: 2
inputs: {ids: {shape: [batch, 3], dtype: int64}, y: {shape: [batch, 1]}}
models: {net: {layers: [{embedding: {count: 20, size: 4, sparse: true}}, flatten, {linear: 1}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: ids}
  step: {update: net, loss: "mse(out, y)", accumulate: 2}
  average: {ema: net, decay: {kind: tf, max: 0.9}, dtype: bfloat16}
"""


def test_windows_join_the_rows_of_micro_batches(backend: str) -> None:
    # With this average TensorFlow's optimizer of graphs once took the rows that are kept for none.
    step, dense = (build_step(text, backend) for text in (READ, READ.replace(", sparse: true", "")))
    random = np.random.default_rng(0)
    for _ in range(4):
        batch = {"ids": random.integers(0, 20, (8, 3)), "y": random.normal(size=(8, 1))}
        step(batch)
        dense(batch)
    for name, value in weights(dense).items():
        assert np.allclose(weights(step)[name], value, rtol=1e-12, atol=1e-14), name


TWO_SETS = """  third: {forward: table, inputs: others}
  three: {call: sum, inputs: third}
  of_one: {gradient: one, wrt: table}
  of_three: {gradient: three, wrt: table}
  both: {call: METHOD, inputs: [of_one, of_three]}
  half: {transform: scale, inputs: both, args: {factor: 0.5}}
  step: {update: table, gradients: half, optimizer: OPTIMIZER}
"""


@pytest.mark.parametrize("method", ["add", "sub"])
def test_sets_with_other_rows_are_added_up(method: str, backend: str) -> None:
    text = SPEC.replace("  g: {shape", "  others: {shape: [two], dtype: int64}\n  g: {shape")
    text = text[: text.index("  cost:")] + TWO_SETS.replace("METHOD", method)
    step, rule, sign = begin(LAZY, backend, text=text), Rule("adam", 0.1, lazy=True), 1 if method == "add" else -1
    for batch in batches(4):
        others = np.array([0, 4])
        step({**batch, "others": others})
        table = slopes(batch)["table.0.weight"]
        table[others] += sign * np.ones(3)
        rule.step({"table.0.weight": 0.5 * table}, [*batch["ids"], *others])
    assert np.abs(weights(step)["table.0.weight"] - rule.w["table.0.weight"]).max() < 1e-12

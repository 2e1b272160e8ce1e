"""Variables other than optimizer slots are declared, found by name, saved, and restored before the first step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphspec import SpecError
from graphspec.declare.inputs import StateSpec
from runtime import Step, StepError, build
from tests.features.steps import build_step, weights
from tests.oracle.states import begin

pytestmark = pytest.mark.row("D14")

SPEC = """
graphspec: 1
name: kept
seed: 7
inputs: {x: {shape: [batch, 3]}}
state:
  center: {shape: [3], init: 0.5}
  queue: {shape: [4, 3], init: unit_normal}
  drawn: {shape: [3], init: normal}
  seen: {shape: [], dtype: int64}
models:
  net: {layers: [{linear: 3}], optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}
ops:
  out: {forward: net, inputs: x}
  aside: {call: sub, inputs: [out, center]}
  columns: {call: permute, inputs: queue, args: {dims: [1, 0]}}
  alike: {call: matmul, inputs: [aside, columns]}
  loss: {loss: mse, inputs: [alike, 1.0]}
  step: {update: net, loss: loss}
  mean: {call: mean, inputs: out, args: {axis: 0}}
  next: {call: lerp, inputs: [center, mean, 0.25]}
  move: {assign: center, value: next}
  longer: {call: concat, inputs: [out, queue], args: {axis: 0}}
  newest: {call: slice, inputs: longer, args: {start: 0, stop: 4, axis: 0}}
  push: {assign: queue, value: newest}
  more: {call: add, inputs: [seen, 1]}
  count: {assign: seen, value: more}
  seen_from: {call: sub, inputs: [x, center], mode: infer}
  far: {call: mul, inputs: [seen_from, drawn], mode: infer}
outputs: [loss, center, far]
"""
X = np.random.default_rng(2).normal(size=(9, 2, 3))


def states(step: Step) -> dict[str, np.ndarray]:
    """Return the declared states."""
    found = step.state().arrays
    return {name.removeprefix("state."): value for name, value in found.items() if name.startswith("state.")}


def go(step: Step, start: int, stop: int) -> list[float]:
    """Take some steps, and return their losses."""
    return [float(step.numpy(step({"x": x})["loss"])) for x in X[start:stop]]


def test_a_state_begins_as_declared_the_same_on_every_backend(backend: str) -> None:
    step = build_step(SPEC, backend)
    found = states(step)
    assert {f"state.{name}" for name in found} == {name for name in step.tensors() if name.startswith("state.")}
    assert found["center"].tolist() == [0.5, 0.5, 0.5]
    assert (found["seen"].tolist(), found["seen"].dtype) == (0, np.int64)
    queue = begin("queue", StateSpec(shape=(4, 3), init="unit_normal"), seed=7)
    assert np.abs(found["queue"] - queue).max() <= 1e-15
    assert np.abs(np.linalg.norm(found["queue"], axis=1) - 1).max() <= 1e-15
    assert np.abs(found["drawn"] - begin("drawn", StateSpec(shape=(3,), init="normal"), seed=7)).max() <= 1e-15


@pytest.mark.needs("torch", "tensorflow")
def test_drawn_states_are_equal_to_the_last_bit_on_both_backends() -> None:
    for dtype in ("float32", "float64"):
        one, other = (states(build_step(SPEC, name, dtype=dtype)) for name in ("torch", "tensorflow"))
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_three_steps_are_those_of_a_loop_by_hand(backend: str) -> None:
    step = build_step(SPEC, backend)
    w, b = (weights(step)[f"net.0.{name}"] for name in ("weight", "bias"))
    center, queue = (states(step)[name] for name in ("center", "queue"))
    moved = [np.zeros_like(w), np.zeros_like(b)]
    for x in X[:3]:
        loss = float(step.numpy(step({"x": x})["loss"]))
        out = x @ w.T + b
        error = (out - center) @ queue.T - 1
        assert abs(loss - np.square(error).mean()) <= 1e-12
        slope = 2 / error.size * error @ queue
        moved = [0.9 * old + new for old, new in zip(moved, (slope.T @ x, slope.sum(0)), strict=True)]
        w, b = w - 0.1 * moved[0], b - 0.1 * moved[1]
        center, queue = 0.75 * center + 0.25 * out.mean(0), np.concatenate([out, queue])[:4]
    found = {**states(step), **weights(step)}
    wanted = {"center": center, "queue": queue, "seen": 3, "net.0.weight": w, "net.0.bias": b}
    assert all(np.abs(found[name] - value).max() <= 1e-12 for name, value in wanted.items())


def test_a_checkpoint_is_restored_bit_for_bit_before_the_first_step(backend: str, tmp_path: Path) -> None:
    step = build_step(SPEC, backend)
    go(step, 0, 3)
    step.save(tmp_path / "there")
    expected, saved = go(step, 3, 6), step.state().arrays
    fresh = build_step(SPEC, backend, ["seed=99"])  # nothing of it was made by a step: neither states nor momenta
    fresh.load(tmp_path / "there")
    assert go(fresh, 3, 6) == expected
    assert all(np.array_equal(value, saved[name]) for name, value in fresh.state().arrays.items())


@pytest.mark.needs("torch", "tensorflow")
def test_a_checkpoint_crosses_to_the_other_backend_bit_for_bit(backend: str, tmp_path: Path) -> None:
    other = {"torch": "tensorflow", "tensorflow": "torch"}[backend]
    step, there = build_step(SPEC, backend), build_step(SPEC, other, ["seed=99"])
    go(step, 0, 3)
    step.save(tmp_path / "there")
    there.load(tmp_path / "there")
    assert all(np.array_equal(value, states(step)[name]) for name, value in states(there).items())
    assert np.allclose(go(step, 3, 6), go(there, 3, 6), rtol=0, atol=1e-12)


def test_a_state_of_another_shape_does_not_fit(backend: str) -> None:
    step = build_step(SPEC, backend)
    longer = build_step(SPEC, backend, ["state.queue.shape=[5, 3]", "ops.newest.args.stop=5"])
    with pytest.raises(SpecError, match=r"GS264.*another shape.*state.queue is \[4, 3\], expected \[5, 3\]"):
        longer.restore(step.state())


def test_what_a_step_returned_is_not_changed_by_what_is_written_later(backend: str) -> None:
    step = build_step(SPEC, backend)
    begun = step.state()
    returned = step({"x": X[0]})["center"]
    kept = np.array(step.numpy(returned))
    step({"x": X[1]})
    step.restore(begun)
    assert np.array_equal(step.numpy(returned), kept)
    assert states(step)["center"].tolist() == [0.5, 0.5, 0.5]


def test_other_modes_read_a_state_and_write_none(backend: str) -> None:
    step = build_step(SPEC, backend)
    go(step, 0, 2)
    before = states(step)
    far = step.numpy(step({"x": X[0]}, mode="infer")["far"])
    assert np.abs(far - (X[0] - before["center"]) * before["drawn"]).max() <= 1e-15
    assert all(np.array_equal(value, before[name]) for name, value in states(step).items())


COUNTING = """
graphspec: 1
name: counting
state: {total: {shape: [2], init: 1.0}, other: {shape: [2]}}
ops:
  double: {call: mul, inputs: [total, 2.0]}
  grow: {assign: total, value: double}
  before: {call: add, inputs: [total, 0.0]}
  behind: {call: add, inputs: [total, 0.0], after: grow}
  exchange: {assign: other, value: total}
  reset: {assign: total, value: 1.5, every: 3, after: grow}
outputs: [before, behind, total, other]
"""


def test_an_op_reads_what_was_written_before_it_and_outputs_are_what_is_left(backend: str) -> None:
    step = build_step(COUNTING, backend)
    found = [{name: step.numpy(value)[0] for name, value in step({}).items()} for _ in range(3)]
    assert found == [
        {"before": 1.0, "behind": 2.0, "total": 2.0, "other": 1.0},
        {"before": 2.0, "behind": 4.0, "total": 4.0, "other": 2.0},
        {"before": 4.0, "behind": 8.0, "total": 1.5, "other": 4.0},
    ]


def test_a_debug_build_reads_and_writes_states_as_others_do(backend: str) -> None:
    plain = build_step(COUNTING, backend)
    checked = build(plain.plan, device="cpu", dtype="float64", debug=True)
    for _ in range(3):
        assert {name: checked.numpy(value).tolist() for name, value in checked({}).items()} == {
            name: plain.numpy(value).tolist() for name, value in plain({}).items()
        }


def narrow(x):
    """Return two columns, whatever the spec says."""
    return x[:, :2]


MISFIT = COUNTING.replace("name: counting", "name: misfit\ninputs: {x: {shape: [2, 3]}}").replace(
    "double: {call: mul, inputs: [total, 2.0]}",
    'double: {call: "tests.features.test_declared_state:narrow", inputs: x}',
)


def test_a_value_of_another_shape_is_found_by_build(backend: str) -> None:
    with pytest.raises(StepError, match=r"op 'grow'[\s\S]*a state stays what it is: found float64 .*2, 2.*expected"):
        build_step(MISFIT, backend)


def test_a_program_that_reads_states_is_exported_with_their_numbers(backend: str, tmp_path: Path) -> None:
    step = build_step(SPEC, backend)
    go(step, 0, 2)
    with pytest.raises(SpecError, match=r"GS266.*no value 'center'"):
        step.export(tmp_path / "refused", mode="infer", values=["center"])
    step.export(tmp_path / "there", mode="infer", values=["far"])
    there = states(step)
    go(step, 2, 4)
    found = run_program(tmp_path / "there", backend)
    assert np.abs(found - (X[0] - there["center"]) * there["drawn"]).max() <= 1e-15


def run_program(folder: Path, backend: str) -> np.ndarray:
    """Return what an exported program gives of the first batch."""
    if backend == "torch":
        import torch

        program = torch.export.load(folder / "kept.pt2").module()
        return program({"x": torch.from_numpy(X[0])})["far"].numpy()
    import tensorflow as tf

    return tf.saved_model.load(str(folder / "kept.savedmodel"))({"x": tf.constant(X[0])})["far"].numpy()

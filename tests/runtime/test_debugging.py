"""A step that fails under debugging has not happened, and can be taken again from the folder it was kept in."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import StepError, build
from runtime.debugging import Watched, find_seed, replay
from runtime.step import BROKEN

SPEC = """
graphspec: 1
name: watched
inputs: {x: {shape: [batch, 4]}, file: {shape: [batch, 3]}}
models:
  d: {layers: [{linear: 8}, {batch_norm: {}}, {dropout: 0.5}, {linear: 3}], optimizer: {name: adam, lr: 0.01}}
  g: {layers: [{linear: 3}], optimizer: {name: adam, lr: 0.01}}
ops:
  z: {random: normal, like: x}
  scores: {forward: d, inputs: z}
  d_loss: {loss: mse, inputs: [scores, file]}
  step_d: {update: d, loss: d_loss}
  root: {call: sqrt, inputs: file, every: 2}
  made: {forward: g, inputs: x}
  wrong: {call: mul, inputs: [made, root], every: 2}
  g_loss: {call: mean, inputs: wrong, every: 2}
  step_g: {update: g, loss: g_loss, every: 2, after: [step_d]}
outputs: [d_loss]
"""
FAILING = 4
"""The first step whose batch is bad and in which the second update fires."""


def built(text=SPEC):
    """Return a debug build."""
    return build(compile_step(load(text)), device="cpu", seed=1, debug=True)


def batch(number: int) -> dict[str, object]:
    """Return the batch of a step: from the third on it has the root of a negative number."""
    random = np.random.default_rng(number)
    sign = -1.0 if number >= FAILING - 1 else 1.0
    return {"x": random.random((6, 4), np.float32), "file": torch.from_numpy(sign * random.random((6, 3), np.float32))}


def run(step, steps: int = FAILING):
    """Take steps, of which the last must fail; return its diagnostic."""
    for number in range(1, steps):
        step(batch(number))
    with pytest.raises(StepError) as raised:
        step(batch(steps))
    return raised.value.diagnostics[0]


def same(one, other) -> bool:
    """Return whether two states are equal in every bit and count."""
    arrays = (one.arrays.keys() == other.arrays.keys()) and all(
        array.tobytes() == other.arrays[name].tobytes() for name, array in one.arrays.items()
    )
    return arrays and one.counters == other.counters


@pytest.fixture
def kept(tmp_path):
    """Return the folder of a step that failed in its second update, after the first was made."""
    run(Watched(built(), tmp_path))
    return tmp_path / f"nan-step-{FAILING}"


def test_a_step_that_fails_has_not_happened(tmp_path):
    plain, step = built(), built()
    for number in range(1, FAILING):
        plain(batch(number))
    found = run(Watched(step, tmp_path))
    assert (found.code, found.message) == ("GS261", "op 'root' (call sqrt): its result 'root' has nan")
    assert same(step.state(), plain.state())
    good = batch(1)
    assert torch.equal(step(good)["d_loss"], plain(good)["d_loss"])


def test_without_watching_the_first_update_has_been_made():
    step = built()
    for number in range(1, FAILING):
        step(batch(number))
    before = {name: step.numpy(value).copy() for name, value in step.tensors().items()}
    with pytest.raises(StepError):
        step(batch(FAILING))
    after = {name: step.numpy(value) for name, value in step.tensors().items()}
    assert any(not np.array_equal(after[name], before[name]) for name in before)


def test_the_error_names_the_folder_and_the_command_that_takes_the_step_again(tmp_path):
    found = run(Watched(built(), tmp_path, command="stepgraph run gan.yaml --replay"))
    place = tmp_path / f"nan-step-{FAILING}"
    assert found.notes[0] == f"in step {FAILING} of mode train"
    assert (
        found.notes[-1]
        == f"state and batch are kept in '{place}'; `stepgraph run gan.yaml --replay {place}` reruns this step"
    )
    report = (place / "report.txt").read_text()
    assert "root: {call: sqrt, inputs: file, every: 2}" in report
    assert {each.name for each in place.iterdir()} == {"state.safetensors", "manifest.json", "batch.npz", "report.txt"}


def test_a_replay_fails_again_at_the_same_op_with_the_same_numbers(kept):
    with pytest.raises(StepError) as raised:
        replay(kept, built())
    (found,) = raised.value.diagnostics
    assert found.code == "GS261"
    said = [line for line in f"{raised.value}".splitlines() if BROKEN not in line]
    assert said == (kept / "report.txt").read_text().splitlines()


def test_a_replay_draws_the_same_random_numbers(tmp_path):
    noisy = SPEC.replace("sqrt, inputs: file", "sqrt, inputs: noise")
    noisy = noisy.replace("ops:", "ops:\n  noise: {random: normal, like: file}")
    watched = Watched(built(noisy), tmp_path)
    first = run(watched, 2)
    with pytest.raises(StepError) as raised:
        replay(tmp_path / "nan-step-2", watched.step)
    assert tuple(note for note in raised.value.diagnostics[0].notes if note != BROKEN) == first.notes[:-1]
    assert any("noise: float32 [6, 3], min -" in note for note in first.notes)


def test_the_seed_is_kept(kept, tmp_path):
    assert find_seed(kept) == compile_step(load(SPEC)).spec.seed
    run(Watched(built(), tmp_path, seed=17))
    assert find_seed(kept) == 17
    built().save(tmp_path / "step-0")
    with pytest.raises(SpecError, match="GS263"):
        find_seed(tmp_path / "step-0")


def test_the_batch_can_be_read_as_it_was_given(kept):
    with np.load(kept / "batch.npz") as arrays:
        assert all(np.array_equal(arrays[name], np.asarray(value)) for name, value in batch(FAILING).items())


def test_a_step_in_evaluation_has_a_folder_of_its_own(tmp_path):
    text = SPEC.replace("[d_loss]", "[d_loss, ratio]") + ""
    text = text.replace("outputs:", "  ratio: {metric: mean, inputs: far}\n  far: {call: log, inputs: file}\noutputs:")
    watched = Watched(built(text), tmp_path)
    with pytest.raises(StepError, match="op 'far'"):
        watched({"x": batch(1)["x"], "file": -np.ones((6, 3), np.float32)}, "eval")
    assert (tmp_path / "nan-eval-step-1" / "report.txt").exists()


def test_another_kind_of_failure_is_undone_and_kept_nowhere(tmp_path):
    step = built()
    step(batch(1))
    before = step.state()
    with pytest.raises(StepError, match="GS209"):
        Watched(step, tmp_path)({"x": np.zeros((2, 5), np.float32)})
    assert same(step.state(), before)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_hides_no_finding(tmp_path):
    (tmp_path / f"nan-step-{FAILING}").write_text("in the way")
    found = run(Watched(built(), tmp_path))
    assert found.code == "GS261"
    assert "could not be kept" in found.notes[-1]


def test_a_checkpoint_without_a_batch_is_no_step_to_replay(kept, tmp_path):
    step = built()
    step.save(tmp_path / "step-0")
    with pytest.raises(SpecError, match=r"error\[GS263\].*no step was kept in it"):
        replay(tmp_path / "step-0", step)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "cannot read the batch"),
        (lambda path: path.write_bytes(b"no"), "differs from what was written"),
    ],
)
def test_a_batch_that_is_not_the_one_that_was_kept_is_refused(kept, change, message):
    change(kept / "batch.npz")
    step = built()
    before = step.state()
    with pytest.raises(SpecError, match=rf"error\[GS263\].*{message}"):
        replay(kept, step)
    assert same(step.state(), before)


def test_a_step_of_another_spec_is_refused(kept):
    other = built(SPEC.replace("{linear: 8}", "{linear: 7}"))
    with pytest.raises(SpecError, match="GS264"):
        replay(kept, other)


def test_a_folder_that_is_not_there_is_told(kept):
    shutil.rmtree(kept)
    with pytest.raises(SpecError, match="GS240"):
        replay(kept, built())

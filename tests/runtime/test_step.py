"""A step takes arrays and tensors, checks a batch when it first sees its like, and reports what it did."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step, StepError, StepReport, build
from runtime.checkpoints import read_checkpoint

SPEC = """
graphspec: 1
name: classifier
inputs: {image: {shape: [batch, 4]}, label: {shape: [batch], dtype: int64}}
models:
  net: {layers: [{linear: 3}], optimizer: {name: adam, lr: 0.1}}
  shadow: {like: net}
ops:
  scores: {forward: net, inputs: image}
  loss: {loss: cross_entropy, inputs: [scores, label], mode: train}
  learn: {update: net, loss: loss}
  follow: {ema: net, into: shadow, decay: 0.9, every: 2}
  guess: {call: argmax, inputs: scores, mode: eval}
outputs: [loss, guess]
"""


@pytest.fixture
def step() -> Step:
    """Return a built step."""
    return build(compile_step(load(SPEC)), device="cpu", seed=1)


def batch(size: int = 5, **changes: object) -> dict[str, object]:
    """Return a batch of arrays."""
    image = np.arange(size * 4, dtype=np.float32).reshape(size, 4) / 10
    return {"image": image, "label": np.arange(size) % 3} | changes


def test_arrays_and_tensors_give_the_same(step):
    tensors = {name: torch.from_numpy(array) for name, array in batch().items()}
    other = build(compile_step(load(SPEC)), device="cpu", seed=1)
    assert torch.equal(step(batch())["loss"], other(tensors)["loss"])


def test_a_report_says_which_step_of_its_mode_it_was_and_what_fired(step):
    assert step.report == StepReport(step=0, mode="train", fired=())
    step(batch())
    assert step.report == StepReport(step=1, mode="train", fired=("learn",))
    step(batch())
    assert step.report == StepReport(step=2, mode="train", fired=("learn", "follow"))
    step(batch(), mode="eval")
    assert step.report == StepReport(step=1, mode="eval", fired=())


def test_a_mode_needs_only_the_inputs_it_reads(step):
    outputs = step({"image": batch()["image"]}, mode="eval")
    assert set(outputs) == {"guess"}
    assert outputs["guess"].shape == (5,)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image": np.zeros((5, 3), np.float32)}, r"'image' has shape \[5, 3\], expected \[batch, 4\]"),
        ({"image": np.zeros((5, 4, 1), np.float32)}, r"'image' has shape \[5, 4, 1\], expected \[batch, 4\]"),
        ({"image": np.zeros((5, 4))}, "'image' has dtype float64, expected float32"),
        ({"label": np.zeros(5, np.int32)}, "'label' has dtype int32, expected int64"),
        ({"label": np.zeros(4, np.int64)}, "'label' has batch = 4, but 'image' has batch = 5"),
        ({"label": [0, 1]}, "'label' is not an array or tensor"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_at_the_input(step, changed, message):
    before = step.models["net"].get_parameter("0.weight").clone()
    with pytest.raises(StepError, match=message) as raised:
        step(batch(**changed))
    assert [each.code for each in raised.value.diagnostics] == ["GS209"]
    assert raised.value.diagnostics[0].span is not None
    assert torch.equal(before, step.models["net"].get_parameter("0.weight"))


@pytest.mark.parametrize("given", [None, [], 3])
def test_a_batch_that_is_no_mapping_is_told_so(step, given):
    with pytest.raises(StepError, match=rf"GS209.*the batch is {type(given).__name__}, expected a mapping"):
        step(given)


@pytest.mark.parametrize(
    ("mode", "remedy"), [("train", 'step(dict(zip(["image", "label"], batch)))'), ("eval", 'step({"image": array})')]
)
def test_a_tuple_is_told_the_names_that_the_step_takes(step, mode, remedy):
    with pytest.raises(StepError, match=r"GS209.*the batch is tuple, expected a mapping") as raised:
        step(tuple(batch().values()), mode=mode)
    assert remedy in raised.value.diagnostics[0].help


def test_an_empty_batch_is_refused_before_it_makes_weights_nan(step):
    with pytest.raises(StepError, match=r"GS209.*'image' has no samples: its shape is \[0, 4\]"):
        step(batch(0))
    assert np.isfinite(step.numpy(step(batch())["loss"]))


def test_all_problems_of_a_batch_are_told_at_once(step):
    with pytest.raises(StepError) as raised:
        step({"imagee": batch()["image"], "label": np.zeros(5)})
    assert "the batch has no input 'image'" in str(raised.value)
    assert "did you mean 'imagee'?" in str(raised.value)
    assert "'label' has dtype float64" in str(raised.value)


def test_a_new_size_of_the_batch_is_fine_and_a_bad_one_later_is_still_found(step):
    step(batch(5))
    step(batch(3))
    with pytest.raises(StepError, match="GS209"):
        step(batch(5, label=np.zeros(3, np.int64)))


def test_a_mode_the_spec_lacks_is_named_with_those_it_has(step):
    with pytest.raises(StepError, match=r"GS219.*no mode 'evaluate': it has train, eval; did you mean 'eval'\?"):
        step(batch(), mode="evaluate")


@pytest.mark.filterwarnings("error")
def test_read_only_and_reversed_arrays_are_taken_without_a_warning(step):
    image = batch()["image"][::-1]
    image.setflags(write=False)
    assert step(batch(image=image))["loss"].shape == ()


def test_a_graph_of_the_callers_is_not_followed(step):
    image = torch.from_numpy(batch()["image"]).requires_grad_()
    step(batch(image=image))
    assert image.grad is None
    assert not step(batch(image=image), mode="eval")["guess"].requires_grad


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_callers_no_grad_is_not_meant_for_the_step(step, context):
    other = build(compile_step(load(SPEC)), device="cpu", seed=1)
    with context():
        loss = step(batch())["loss"]
    assert torch.equal(loss, other(batch())["loss"])


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_callers_no_grad_is_not_meant_for_build(step, context):
    with context():
        built = build(compile_step(load(SPEC)), device="cpu", seed=1)
    assert torch.equal(built(batch())["loss"], step(batch())["loss"])
    assert torch.equal(built(batch())["loss"], step(batch())["loss"])


def test_outputs_carry_no_graph(step):
    assert not step(batch())["loss"].requires_grad


def test_tensors_holds_weights_and_slots_by_name(step):
    step(batch())
    tensors = step.tensors()
    assert {name for name in tensors if name.startswith("models.net.")} == {"models.net.0.weight", "models.net.0.bias"}
    assert tensors["optimizers.net.exp_avg.0.weight"].shape == (3, 4)
    assert tensors["models.shadow.0.bias"].shape == (3,)
    assert step.sizes == {"net": 15, "shadow": 15}


def test_an_output_comes_to_the_host_as_a_copy(step):
    loss = step(batch())["loss"]
    array = step.numpy(loss)
    array[...] = 0
    assert float(loss) != 0
    assert step.numpy(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32


def test_a_step_built_in_double_takes_both_precisions():
    step = build(compile_step(load(SPEC)), device="cpu", dtype="float64")
    for kind in (np.float32, np.float64):
        assert step(batch(image=np.ones((5, 4), kind)))["loss"].dtype == torch.float64


def test_a_saved_step_is_loaded_into_a_new_build(step, tmp_path):
    for _ in range(3):
        step(batch())
    step.save(tmp_path / "kept")
    other = build(compile_step(load(SPEC)), device="cpu", seed=1)
    other.load(str(tmp_path / "kept"))
    assert torch.equal(other(batch())["loss"], step(batch())["loss"])
    assert other.report == step.report == StepReport(step=4, mode="train", fired=("learn", "follow"))


def test_a_loaded_checkpoint_says_where_it_comes_from(step, tmp_path):
    step(batch())
    step.save(tmp_path / "kept")
    sections = read_checkpoint(tmp_path / "kept").sections
    assert sections["origin"] == {"name": "classifier", "step": 1, "backend": "torch", "device": "cpu"}
    assert sections["counters"]["steps"] == {"train": 1, "eval": 0}


def test_a_folder_that_is_no_checkpoint_changes_nothing(step, tmp_path):
    step(batch())
    with pytest.raises(SpecError, match="GS240"):
        step.load(tmp_path / "nothing")
    assert step.report.step == 1


def test_a_step_that_is_restored_has_nothing_to_report_yet(step):
    step(batch())
    step.restore(step.state())
    assert step.report == StepReport(step=0, mode="train", fired=())
    step(batch())
    assert step.report.step == 2


def test_a_mode_that_is_reset_counts_from_one_again_and_others_go_on(step):
    for mode in ("train", "eval", "train", "eval"):
        step(batch(), mode=mode)
    step.reset("eval")
    assert step.report == StepReport(step=0, mode="train", fired=())
    step(batch(), mode="eval")
    assert step.report == StepReport(step=1, mode="eval", fired=())
    step(batch())
    assert step.report.step == 3


def test_a_mode_that_is_reset_draws_the_same_numbers_again():
    ops = "noise: {random: normal, like: x}\n  seen: {call: add, inputs: [x, noise]}"
    text = f"graphspec: 1\nname: n\ninputs: {{x: {{shape: [batch, 2]}}}}\nmodels: {{}}\nops:\n  {ops}\noutputs: seen\n"
    step = build(compile_step(load(text)), device="cpu")
    draws = [step({"x": np.zeros((2, 2), np.float32)}, mode="eval")["seen"] for _ in range(3)]
    step.reset("eval")
    again = [step({"x": np.zeros((2, 2), np.float32)}, mode="eval")["seen"] for _ in range(3)]
    assert all(map(torch.equal, draws, again))
    assert not torch.equal(draws[0], draws[1])


@pytest.mark.parametrize("call", [Step.reset, Step.end_epoch])
def test_only_modes_of_the_spec_can_be_reset(step, call):
    with pytest.raises(StepError, match=r"the spec has no mode 'evla'.*did you mean 'eval'") as raised:
        call(step, "evla")
    assert [each.code for each in raised.value.diagnostics] == ["GS219"]

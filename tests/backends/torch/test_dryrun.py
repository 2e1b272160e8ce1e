"""The dry run leaves no trace: not on weights, buffers or random states, not on the terminal."""

from __future__ import annotations

import copy
import logging
import random
import sys

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import load
from runtime import Step, StepError, build
from runtime.backends.torch.untouched import untouched
from tests.backends.torch import users
from tests.backends.torch.specs import OPS, batch_of, build_of, user

NOTES = {"real": "checked by a real step on a copy at batch 2", "fake": "checked with fake tensors"}
pytestmark = pytest.mark.usefixtures("way_of_trying")


def build_with(model: torch.nn.Module) -> Step:
    """Return a step of a model made elsewhere."""
    return build_of(user(type(model).__name__), models={"net": model})


@pytest.mark.parametrize("kind", [users.Stateful, users.Branching])
def test_weights_buffers_and_random_states_are_untouched_bit_for_bit(kind):
    given = kind()
    before = copy.deepcopy(given.state_dict())
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    step = build_with(given)
    assert step.models["net"] is given
    assert all(torch.equal(tensor, before[name]) for name, tensor in given.state_dict().items())
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert np.array_equal(states[2], np.random.get_state()[1])


def test_a_seed_that_a_model_gives_to_what_it_imports_first_does_not_stay(monkeypatch):
    module = sys.modules["numpy.random"]
    kept = module.get_state()
    monkeypatch.delitem(sys.modules, "numpy.random")
    with untouched():
        monkeypatch.setitem(sys.modules, "numpy.random", module)
        module.seed(0)
        seeded = module.get_state()[1].copy()
    assert not np.array_equal(seeded, module.get_state()[1])
    module.set_state(kept)


def test_building_from_a_class_leaves_torchs_random_state_alone():
    before = torch.get_rng_state()
    build_of(user("Stateful"))
    build_of("{layers: [{linear: 3}, {dropout: 0.5}, {linear: 3}], optimizer: adam}")
    assert torch.equal(before, torch.get_rng_state())


def test_small_steps_are_tried_on_copies_and_large_ones_with_fake_tensors(way_of_trying):
    assert NOTES[way_of_trying] in build_of(user("Stateful")).notes


@pytest.mark.parametrize("way_of_trying", ["fake"], indirect=True)
def test_what_fake_tensors_cannot_run_is_run_really_on_a_copy_and_says_so():
    notes = build_of(user("Branching")).notes
    assert any(note.startswith("checked by a real step on a copy at batch 2: ") for note in notes)


@pytest.mark.parametrize("way_of_trying", ["real"], indirect=True)
def test_what_fails_for_made_up_numbers_alone_is_tried_with_fake_tensors():
    assert "checked with fake tensors" in build_of(user("Inverting")).notes


def test_nothing_reaches_the_terminal_where_fake_tensors_fail(capfd):
    build_of(user("Branching"))
    with pytest.raises(StepError, match="size of tensor a"):
        build_of(user("Plain", ", args: {out: 5}"))
    assert capfd.readouterr() == ("", "")


def test_logs_are_back_after_the_check(caplog):
    build_with(users.Talking())
    assert caplog.records == []
    logging.getLogger("torch").error("heard")
    assert [record.message for record in caplog.records] == ["heard"]


def test_lazy_layers_get_their_sizes_and_nothing_else(way_of_trying):
    torch.manual_seed(0)
    step = build_of(user("Lazy"))
    assert NOTES[way_of_trying] in step.notes
    buffers = dict(step.models["net"].named_buffers())
    assert buffers["body.1.running_mean"].tolist() == [0.0, 0.0, 0.0]
    assert int(buffers["body.1.num_batches_tracked"]) == 0
    assert np.isfinite(step.numpy(step(batch_of())["loss"]))


def test_a_likeness_of_a_lazy_model_is_copied_once_its_sizes_are_known():
    ops = OPS + "  follow: {ema: net, into: other, decay: 0.5, buffers: copy}\n"
    step = build_of(user("Lazy"), ops, "\n  other: {like: net}")
    weights = [step.models[name].get_parameter("body.0.weight") for name in ("net", "other")]
    assert torch.equal(*weights)
    assert np.isfinite(step.numpy(step(batch_of())["loss"]))


def test_lazy_layers_start_the_same_for_a_seed():
    one, other = build_of(user("Lazy"), seed=1), build_of(user("Lazy"), seed=1)
    pairs = zip(one.models["net"].parameters(), other.models["net"].parameters(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)


def test_inputs_of_open_sizes_are_checked_with_the_first_batch():
    text = "graphspec: 1\nname: t\ninputs: {x: {shape: [batch, time, 4]}, t: {}}\n"
    text += "models: {m: {layers: [{linear: 3}], optimizer: adam}}\nops:\n  y: {forward: m, inputs: x}\n"
    text += "  l: {loss: mse, inputs: [y, t]}\n  u: {update: m, loss: l}\noutputs: [l]\n"
    step = build(compile_step(load(text)), device="cpu")
    assert "checked with the first batch: inputs have free sizes other than `batch`" in step.notes
    x = torch.ones(2, 5, 4)
    before = step.models["m"].get_parameter("0.weight").clone()
    with pytest.raises(StepError, match="op 'l' failed: its operands have shapes that do not fit"):
        step({"x": x, "t": torch.ones(2, 5, 2)})
    assert torch.equal(before, step.models["m"].get_parameter("0.weight"))
    assert step({"x": x, "t": torch.ones(2, 5, 3)})["l"].shape == ()


@pytest.mark.parametrize("more", ["loss_scale: dynamic", "loss_scale: 8", "compute: float16"])
def test_a_step_with_a_loss_scale_is_checked_too(way_of_trying, more):
    text = f"""
graphspec: 1
name: scaled
inputs: {{x: {{shape: [batch, 4]}}}}
models: {{net: {{layers: [{{linear: 4}}], optimizer: adam}}}}
ops:
  y: {{forward: net, inputs: x}}
  loss: {{loss: mse, inputs: [y, x]}}
  step: {{update: net, loss: loss}}
  slow: {{ema: net, decay: 0.9}}
precision: {{{more}}}
"""
    assert NOTES[way_of_trying] in build(compile_step(load(text)), device="cpu").notes

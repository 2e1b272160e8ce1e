"""What goes wrong in a step is told at its place in the spec, with the user's frames and nothing of ours."""

from __future__ import annotations

import traceback

import numpy as np
import pytest
import torch
from torch import nn

from graphspec import SpecError
from runtime import StepError, build
from tests.backends.torch.specs import OPS, USERS, batch_of, build_of, plan_of, user
from tests.backends.torch.users import Plain


def codes(error: SpecError) -> list[str]:
    """Return the codes of an error."""
    return [each.code for each in error.diagnostics]


def test_an_error_of_the_users_shows_the_op_and_the_users_frames_only():
    step = build_of(user("Raising"))
    with pytest.raises(StepError, match="op 'y' raised ValueError: too many samples") as raised:
        step(batch_of(6))
    text = str(raised.value)
    assert codes(raised.value) == ["GS210"]
    assert "y: {forward: net, inputs: x}" in text
    assert [line.split(": ")[0].split()[-1] for line in text.splitlines() if "users.py:" in line] == [
        "forward",
        "check",
    ]
    assert "stepgraph" not in text
    assert "site-packages" not in text


def test_an_error_in_a_step_says_in_which_and_on_what():
    step = build_of(user("Raising"))
    step(batch_of(3))
    with pytest.raises(StepError, match="too many") as raised:
        step(batch_of(6))
    notes = raised.value.diagnostics[0].notes
    assert notes[:2] == ("in step 2 of mode train", "called with x: float32 [6, 4]")


def test_a_model_of_another_type_says_how_to_build_the_step_in_it():
    with pytest.raises(SpecError, match=r"GS208.*float64, but the step is built for float32") as raised:
        build_of(user("Plain"), models={"net": Plain().double()})
    assert 'build(..., dtype="float64")' in raised.value.diagnostics[0].help
    build_of(user("Plain"), models={"net": Plain().double()}, dtype="float64")(batch_of())


def test_wrong_arguments_of_a_class_are_told_where_they_stand():
    with pytest.raises(StepError, match=r"compare `args` with what tests\.backends\..*:Plain takes") as raised:
        build_of(user("Plain", ", args: {size: 5}"))
    text = str(raised.value)
    assert text.splitlines()[4].index("^") == text.splitlines()[3].index("{size: 5}")


def test_an_error_carries_none_of_our_frames_on():
    step = build_of(user("Raising"))
    with pytest.raises(StepError, match="too many") as raised:
        step(batch_of(6))
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_a_traceback_can_show_the_emitted_line():
    step = build_of(user("Raising"))
    module = step._built.engine.loaded
    with pytest.raises(ValueError, match="too many") as raised:
        module.call("step", step._admit(batch_of(6), step._find_intake("train", None)))
    assert "y = net(x)" in "".join(traceback.format_exception(raised.value))


def test_a_step_that_failed_once_goes_on_with_a_batch_that_fits():
    step = build_of(user("Raising"))
    with pytest.raises(StepError, match="too many"):
        step(batch_of(6))
    assert np.isfinite(step.numpy(step(batch_of(3))["loss"]))
    assert step.report.step == 1


@pytest.mark.parametrize(
    ("net", "code", "message"),
    [
        (user("Plain", ", args: {out: 5}"), "GS211", "op 'loss' failed: The size of tensor a"),
        (user("Unused"), "GS212", "'loss' does not depend on net.head.weight, net.head.bias"),
        (user("Broken"), "GS210", "model 'net' raised OSError: no such weights"),
        (user("NoModule"), "GS211", "model 'net' failed: the class does not create a torch.nn.Module"),
        (user("Plain", ", args: {size: 5}"), "GS211", "unexpected keyword argument 'size'"),
        (user("Named"), "GS211", "op 'loss' failed: a call gave several results where one was expected"),
        (
            f"{{layers: [{{linear: 3}}], optimizer: {{class: '{USERS}:NoModule', lr: 0.1}}}}",
            "GS211",
            "model 'net' failed",
        ),
    ],
)
def test_what_is_wrong_is_found_before_the_first_step(net, code, message):
    with pytest.raises(SpecError) as raised:
        build_of(net)
    assert codes(raised.value) == [code]
    assert message in str(raised.value)


def test_a_forward_that_replaces_a_followed_buffer_is_refused():
    others = "\n  average: {like: net}"
    ops = OPS + "  follow: {ema: net, into: average, decay: 0.9, buffers: copy}\n"
    with pytest.raises(StepError, match=r"replaces its buffer 'center' by a new tensor"):
        build_of(user("Replacing"), ops, others)
    build_of(user("Replacing"))


def test_nothing_is_imported_that_was_not_allowed():
    with pytest.raises(SpecError, match="--allow tests"):
        build(plan_of(user("Plain")), device="cpu")


def test_a_model_that_cannot_be_copied_says_so_only_where_a_copy_is_needed():
    step = build_of(user("Uncopyable"))
    assert any(note.startswith("not checked before the first step: the models cannot be copied") for note in step.notes)
    with pytest.raises(StepError, match="the model cannot be copied"):
        build_of(user("Uncopyable"), others="\n  other: {like: net}", ops=OPS + "  z: {copy: net, into: other}\n")


def test_a_model_without_anything_to_train_says_so():
    with pytest.raises(StepError, match="no parameter of the model has `requires_grad`"):
        build_of(user("Plain"), models={"net": Plain().requires_grad_(False)})


def test_a_refused_class_can_also_be_given():
    from_class = "\n  other: {like: net, init: fresh}"
    plan = plan_of(user("Plain"), OPS + "  z: {copy: net, into: other}\n", from_class)
    with pytest.raises(SpecError, match=r"or give a module for it: `models=\{'other': ...\}`"):
        build(plan, device="cpu", models={"net": Plain()})
    build(plan, device="cpu", models={"net": Plain(), "other": Plain()})


def test_a_loss_that_is_no_number_says_how_to_reduce_it():
    ops = OPS.replace("inputs: [y, t]}", "inputs: [y, t], reduction: none}")
    with pytest.raises(SpecError, match="take its mean or sum first"):
        build_of(user("Plain"), ops)


class Choosing(nn.Module):
    """Calls one of two layers, as the data says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.first(x) + self.second(x) if x.sum() > 0 else self.first(x)


def test_a_gradient_that_the_data_leaves_out_writes_nothing_of_its_update():
    ops = """
  z: {forward: early, inputs: x}
  before: {loss: mse, inputs: [z, t]}
  go: {update: early, loss: before}
  y: {forward: net, inputs: x, after: go}
  loss: {loss: mse, inputs: [y, t]}
  step: {update: net, loss: loss}
"""
    early, net = Plain(), Choosing()
    step = build_of(user("Plain"), ops, f"\n  early: {user('Plain')}", models={"net": net, "early": early})
    batch = batch_of() | {"x": -np.ones((6, 4), "float32")}
    kept = [parameter.detach().clone() for parameter in (*net.parameters(), *early.parameters())]
    with pytest.raises(StepError, match="op 'step'"):
        step(batch)
    assert [torch.equal(*pair) for pair in zip(kept, (*net.parameters(), *early.parameters()), strict=True)] == [
        *[True] * 4,  # of its update nothing is written
        *[False] * 2,  # the update before it was applied
    ]

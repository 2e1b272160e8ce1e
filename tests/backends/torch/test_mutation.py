"""Values are immutable: users' code that writes into what it is given is found before the first step."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from runtime import Step, StepError
from tests.backends.torch.specs import ADAM, OPS, USERS, batch_of, build_of, user
from tests.backends.torch.users import Plain

pytestmark = pytest.mark.usefixtures("way_of_trying")
LAYERS = f"{{layers: [{{linear: 3}}], {ADAM}}}"


def refused(net: str, ops: str = OPS, **more: object) -> str:
    """Return the only message of a build that is refused for a write."""
    with pytest.raises(StepError, match="GS216") as raised:
        build_of(net, ops, **more)
    (found,) = raised.value.diagnostics
    assert found.code == "GS216"
    assert found.span is not None
    assert "x = x.clone()" in found.help
    return found.message


@pytest.mark.parametrize("way", ["layer", "view", "data", "value"])
def test_a_model_that_writes_into_its_input_is_refused(way):
    assert refused(user("Scaling", f", args: {{way: {way}}}")) == "op 'y': model 'net' writes into its input 'x'"


def test_the_users_line_that_writes_is_shown():
    with pytest.raises(StepError, match=r"written in:\n.*users\.py:\d+ in forward: x\.data\.mul_\(2\)\n +=") as raised:
        build_of(user("Scaling", ", args: {way: data}"))
    assert "site-packages" not in str(raised.value)


@pytest.mark.parametrize("way", ["copy", "none"])
def test_what_a_model_made_itself_it_may_write(way):
    step = build_of(user("Scaling", f", args: {{way: {way}}}"))
    batch = batch_of()
    before = batch["x"].copy()
    step(batch)
    assert np.array_equal(batch["x"], before)


def test_a_model_given_by_hand_is_watched_too():
    given = nn.Sequential(nn.Dropout(0.5, inplace=True), Plain())
    assert refused(LAYERS, models={"net": given}) == "op 'y': model 'net' writes into its input 'x'"


def test_a_layer_behind_another_may_work_in_place():
    given = nn.Sequential(Plain(), nn.LeakyReLU(0.2, inplace=True))
    assert isinstance(build_of(LAYERS, models={"net": given}), Step)


def test_a_value_of_another_op_is_named():
    first = "  h: {forward: first, inputs: x}\n  more: {update: first, loss: loss}\n"
    ops = OPS.replace("inputs: x}", "inputs: h}") + first
    others = f"\n  first: {{layers: [{{linear: 4}}], {ADAM}}}"
    message = refused(user("Scaling", ", args: {way: layer}"), ops, others=others)
    assert message == "op 'y': model 'net' writes into its input 'h'"


def test_a_method_is_named():
    ops = OPS.replace("inputs: x}", "inputs: x, method: stretch, outputs: [y, z]}")
    message = refused(user("Scaling", ", args: {way: none}"), ops)
    assert message == "op 'y': `stretch` of model 'net' writes into its input 'x'"


def test_a_call_on_clones_of_the_weights_is_watched_too():
    ops = OPS.replace("inputs: x}", "inputs: x, snapshot: true}")
    assert "writes into its input 'x'" in refused(user("Scaling", ", args: {way: layer}"), ops)


def test_a_loss_that_writes_into_its_prediction_is_refused():
    ops = OPS.replace("loss: mse", f"loss: '{USERS}:eager_loss'")
    assert refused(LAYERS, ops) == f"op 'loss': '{USERS}:eager_loss' writes into its input 'y'"


def test_a_transform_that_writes_into_gradients_is_refused():
    ops = OPS.replace(
        "  step: {update: net, loss: loss}",
        f"""  g: {{gradient: loss, wrt: net}}
  h: {{transform: '{USERS}:halve', inputs: g}}
  step: {{update: net, gradients: h}}""",
    )
    assert refused(LAYERS, ops) == f"op 'h': '{USERS}:halve' writes into its input 'g'"

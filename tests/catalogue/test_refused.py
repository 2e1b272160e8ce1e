"""What cannot be written: the specs of specs/refused, each with the problem that it has."""

from __future__ import annotations

import pytest
import torch

from graphspec import SpecError
from runtime import build
from tests.catalogue.trial import SPECS, plan_of
from tests.catalogue.user_code import half_outside

REFUSED = {
    "average-in-update": "E-EMA-TARGET.*'teacher' is written by the ema 'follow' and stepped by the update 'step'",
    "average-without-policy": "E-BUFFERS.*'net', which has buffers, but does not say what happens to them",
    "compiled-model": "GS040.*unknown key 'compile'",
    "loss-of-constants": "E-NO-GRADIENT.*'loss' for model 'net', but 'loss' does not depend on it",
    "penalty-without-effect": "E-NO-GRADIENT.*the term 'penalty' of 'loss' does not depend on 'critic'",
    "tied-weights": r"E-OVERLAP.*tied\(reader, speaker\) is stepped by two optimizers",
    "trainable-flag": "GS040.*unknown key 'trainable'",
    "two-owners": "E-OVERLAP.*body.params is stepped by two optimizers",
}
AT_BUILD = {"loss-half-outside": "GS212.*does not depend on every parameter"}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_it_cannot_be_written(name, backend):
    with pytest.raises(SpecError, match=REFUSED[name]):
        plan_of(f"refused/{name}", backend=backend)


@pytest.mark.parametrize("name", AT_BUILD)
def test_what_only_the_framework_can_see_is_refused_before_the_first_write(name):
    with pytest.raises(SpecError, match=AT_BUILD[name]) as caught:
        build(plan_of(f"refused/{name}"), device="cpu", allow=["tests"])
    assert "'loss' does not depend on other.0.weight, other.0.bias" in str(caught.value)


def test_by_hand_a_parameter_that_the_loss_does_not_reach_is_skipped_in_silence():
    one, other = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    before, x = other.weight.clone(), torch.ones(2, 3)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
    half_outside(one(x), other(x)).backward()
    optimizer.step()
    assert torch.equal(other.weight, before)


def test_every_spec_that_is_refused_is_named_here():
    assert {path.stem for path in (SPECS / "refused").iterdir()} == REFUSED.keys() | AT_BUILD.keys()

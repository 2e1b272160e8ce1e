"""Optimizers: defaults are those of PyTorch, and everything but the name is an option."""

from __future__ import annotations

import inspect

import pytest
import torch
from pydantic import ValidationError

from graphspec.declare.optimizers import OPTIMIZERS, OptimizerSpec
from graphspec.declare.schedules import ScheduleSpec

TORCH = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "muon": torch.optim.Muon,
}
OURS_ALONE = ("fused", "momentum_form", "adjust_lr", "sparse")


@pytest.mark.parametrize("name", TORCH)
def test_resolved_options_are_the_defaults_of_torch(name):
    parameters = inspect.signature(TORCH[name].__init__).parameters
    resolved = OptimizerSpec.model_validate(name).resolved()
    shared = {key: value for key, value in resolved.items() if key not in OURS_ALONE}
    assert shared == {key: parameters[key].default for key in shared}


def test_the_defaults_of_lion_are_those_of_its_authors():
    resolved = OptimizerSpec.model_validate("lion").resolved()
    assert resolved == {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "fused": "auto"}


def test_every_rule_has_a_rate():
    assert all(options[0].name == "lr" for options in OPTIMIZERS.values())


def test_written_options_win_over_defaults():
    spec = OptimizerSpec.model_validate({"name": "adam", "lr": 2e-4, "betas": [0.5, 0.999]})
    assert spec.options == {"lr": 2e-4, "betas": (0.5, 0.999)}
    assert spec.resolved()["betas"] == (0.5, 0.999)
    assert spec.resolved()["eps"] == 1e-8


def test_a_class_has_the_options_that_are_written_and_no_others():
    spec = OptimizerSpec.model_validate({"class": "my.optim:Shampoo", "lr": 0.1, "mode": "fast"})
    assert spec.class_ is not None
    assert spec.class_.find("torch") == "my.optim:Shampoo"
    assert spec.resolved() == {"lr": 0.1, "mode": "fast"}


def test_an_option_may_be_a_schedule():
    spec = OptimizerSpec.model_validate({"name": "sgd", "lr": {"schedule": "linear", "from": 0.1, "over": 10}})
    schedule = spec.options["lr"]
    assert isinstance(schedule, ScheduleSpec)
    assert schedule.fields == {"from": 0.1, "to": 0.0, "over": 10.0}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"lr": 0.1}, "found neither"),
        ({"name": "adam", "class": "a:B"}, "found both"),
        ({"name": "adam", "lr": {"from": 1}}, "without `schedule`"),
        ({"name": "adam", "betas": ["a", 1]}, "a list of numbers"),
        ({"2": {"name": "adam"}, "10": {"name": "sgd"}}, "no optimizer steps before epoch 2"),
        ("adm", "'adam'"),
    ],
)
def test_what_is_no_optimizer_is_refused(written, message):
    with pytest.raises(ValidationError, match=message):
        OptimizerSpec.model_validate(written)

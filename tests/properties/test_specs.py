"""Random specs contain what they are meant to contain, in every listing and as a strategy."""

from __future__ import annotations

from random import Random

from hypothesis import Phase, given, settings

from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import Tally, try_spec
from tests.properties.features import count_features
from tests.properties.optimizers import RULES
from tests.properties.specs import random_spec, specs

WANTED = {
    "a model updated twice": 0.2,
    "a loss with two updates": 0.1,
    "a forward of an average or copy": 0.25,
    "a model called twice on the same": 0.2,
    "BatchNorm in training": 0.3,
    "BatchNorm in evaluation": 0.4,
    "layer: dropout": 0.2,
    "layer: conv2d": 0.3,
    "layer: embedding": 0.05,
    "rows: lazy": 0.02,
    "rows: dense": 0.01,
    "model: parameter": 0.1,
    "model: like, fresh": 0.05,
    "op: gradient": 0.5,
    "gradient: stop": 0.05,
    "op: transform": 0.1,
    "op: copy": 0.1,
    "op: metric": 0.15,
    "ema: stands in": 0.04,
    "ema: hidden": 0.15,
    "ema: written back": 0.03,
    "ema: a formula": 0.1,
    "ema: power": 0.01,
    "ema: init zeros": 0.03,
    "ema: every": 0.05,
    "ema: buffers average": 0.03,
    "forward: stop": 0.2,
    "forward: snapshot": 0.1,
    "forward: checkpoint": 0.2,
    "forward: after": 0.4,
    "forward: mode": 0.2,
    "random: bernoulli": 0.1,
    "schedule: join": 0.03,
    "schedule: by steps": 0.1,
    "update: joint": 0.2,
    "update: clip": 0.2,
    "update: every": 0.2,
    "update: every update": 0.03,
    "update: until": 0.05,
    "update: from gradients": 0.2,
    "update: with an optimizer": 0.1,
    "class: Coder": 0.05,
    "class: Reader": 0.05,
    "class: Mirror": 0.015,
    "class: Idler": 0.05,
    "class: Recoder": 0.025,
    "class: Keeper": 0.01,
    "class: Speaker": 0.015,
    "a module in both modes": 0.006,
    "call: stack": 0.006,
    "layer: conv_transpose2d": 0.03,
    "layer: upsample": 0.02,
    "call: tests.properties.users:bend": 0.02,
    "loss: tests.properties.users:gap": 0.008,
    "random: randint": 0.008,
    "random: permutation": 0.008,
    "gradient: unconnected": 0.05,
    "a copy into a model in training": 0.006,
    "update: start in epochs": 0.02,
    "update: start in samples": 0.02,
    "update: until in epochs": 0.01,
    "update: until in updates": 0.04,
    "update: until in updates that may be skipped": 0.006,
    "ema: start in updates that may be skipped": 0.004,
    "loss: every": 0.05,
    "loss: start": 0.015,
    "input: sequences": 0.05,
    "input: of open shape": 0.03,
    "loss: of a tap": 0.015,
    "call: reshape": 0.03,
    "gradient: by a tap": 0.03,
    "update: accumulate": 0.08,
    "update: constraint": 0.013,
    "model: groups": 0.06,
    "group: optimizer": 0.02,
    "model: constraint": 0.05,
    "model: regularizer": 0.06,
    "op: assign": 0.06,
    "op: schedule": 0.03,
    "transform: clip_agc": 0.01,
    "transform: noise": 0.008,
    "transform: pcgrad": 0.01,
    "transform: project": 0.004,
    "transform: centralize": 0.01,
    "transform: normalize": 0.005,
    "updates: 3": 0.1,
    "updates: 4": 0.05,
}
"""The least share of specs with a feature."""


def test_random_specs_have_every_feature_often_enough():
    counts = count_features(random_spec(seed) for seed in range(600))
    wanted = {**WANTED, **{f"optimizer: {rule}": 0.04 for rule in RULES}}
    assert {name: counts[name] for name, share in wanted.items() if counts[name] < share * 600} == {}


def test_a_seed_gives_the_same_spec_every_time():
    assert random_spec(7) == random_spec(Random(7))
    assert random_spec(7) != random_spec(8)


@settings(max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(specs())
def test_specs_from_the_strategy_agree_with_the_oracle(document):
    try:
        assert try_spec(document, ["fewest"], Tally()) == ""
    except DegenerateError:
        return

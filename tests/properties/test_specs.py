"""Random specs contain what they are meant to contain, in every listing and as a strategy."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import Phase, given, settings

from tests.oracle.optimizers import DegenerateError
from tests.properties import specs as specs_of
from tests.properties.agreement import Tally, try_spec
from tests.properties.features import count_features
from tests.properties.functions import TERMS
from tests.properties.library import add_library
from tests.properties.optimizers import RULES
from tests.properties.specs import random_spec, specs
from tests.properties.vocabulary import find_language, find_words
from tests.properties.written import write_shorter

WANTED = {
    "a model updated twice": 0.2,
    "a loss with two updates": 0.1,
    "a forward of an average or copy": 0.25,
    "a model called twice on the same": 0.2,
    "BatchNorm in training": 0.3,
    "BatchNorm in evaluation": 0.4,
    "loss: ctc": 0.002,
    "layer: spectral_norm": 0.01,
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
    "part: iteration of iteration": 0.01,
    "part: alternative of iteration": 0.003,
    "part: iteration of alternative": 0.003,
    "ema: in a part": 0.01,
    "copy: in a part": 0.005,
    "adapt: of a class, order 1": 0.003,
    "adapt: of a class, order 2": 0.003,
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


NEVER = {
    "how a run is driven, or a text is put together, not a step": (
        "document data", "document include", "document run", "document vars", "op doc", "model weights",
        "ema use recompute_buffers", "document rng: native",
    ),
    "several processes, which one process cannot show": (
        "document parallel", "update reduce", "update reduce: mean", "update reduce: sum", "layer batch_norm: sync",
        "call: all_gather", "call: all_mean",
    ),
    "switches: tests/properties/test_joined.py and sharing.py compile specs with and without": (
        "document join_calls", "document join_gradients",
    ),
    "a default, or its name": (
        "ema use eval: separate", "gradient unconnected: error", "loss lazy: scale", "loss reduction: mean",
        "model init: copy", "repeat batch: reuse", "update defer: auto", "update missing: error",
        "ema int_buffers: copy",
    ),
    "what ends a step or a compilation with an error": ("update defer: never", "update on_overflow: error"),
    "a field that only a reader of expressions writes": ("call expr", "loss expr"),
    "other words for `train` and `eval`, by the same lines": (
        "op mode: !eval", "op mode: !infer", "op mode: !test", "op mode: !train", "op mode: infer", "op mode: test",
    ),
    "of blocks, which tests/graphspec/test_blocks.py writes out by hand": ("use args", "use models", "use stop"),
    "of classes and metrics of the user's, which the oracle would have to know one by one": (
        "forward method", "metric args",
    ),
    "another place for a word of an average": (
        "model buffers", "model buffers: average", "model buffers: copy", "model buffers: ignore",
        "ema float_buffers: ignore",
    ),
    "numbers of one layer, which tests/oracle/test_layers.py and tests/conformance compare with the frameworks": (
        "layer avg_pool: padding", "layer batch_norm: eps", "layer conv1d: bias", "layer conv1d: dilation",
        "layer conv1d: groups", "layer conv1d: stride", "layer conv2d: dilation", "layer conv2d: groups",
        "layer conv2d: stride", "layer elu: alpha", "layer group_norm: eps", "layer gru: bidirectional",
        "layer instance_norm: affine", "layer layer_norm: eps", "layer lstm: last", "layer max_pool: padding",
        "layer multi_head_attention: bias", "layer positional: count", "layer softmax: axis",
        "transform normalize: per",
    ),
}  # fmt: skip
"""Words of the language that no random spec says, by the reason."""
FORCED = 120


@cache
def first_specs() -> list[dict]:
    """Return the first random specs."""
    return [random_spec(seed) for seed in range(600)]


@pytest.mark.long
def test_random_specs_say_every_word_of_the_language(monkeypatch):
    said = {word for document in first_specs() for word in find_words(document)}
    monkeypatch.setattr(specs_of, "RECENT", tuple((add, 1.0) for add, _ in specs_of.RECENT))
    monkeypatch.setattr(specs_of, "add_library_parts", add_library)
    for document in map(random_spec, range(FORCED)):  # with all that most do without
        said |= {*find_words(document), *find_words(write_shorter(document))}
    draft = specs_of.Draft(Random(1))
    terms = [make(draft, "x", "y") for make in TERMS for _ in range(60)]
    said |= {word for ops in terms for word in find_words({"models": {}, "ops": ops})}
    assert find_language() - said == {word for words in NEVER.values() for word in words}


@pytest.mark.long
def test_random_specs_have_every_feature_often_enough():
    counts = count_features(first_specs())
    wanted = {**WANTED, **{f"optimizer: {rule}": 0.04 for rule in RULES}}
    assert {name: counts[name] for name, share in wanted.items() if counts[name] < share * 600} == {}


def test_a_seed_gives_the_same_spec_every_time():
    assert random_spec(7) == random_spec(Random(7))
    assert random_spec(7) != random_spec(8)


@settings(max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(specs())
def test_specs_from_the_strategy_agree_with_the_oracle(document):
    try:
        assert try_spec(document, ["fewest"], Tally()) == ""
    except DegenerateError:
        return

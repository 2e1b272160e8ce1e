"""Every example checks without a warning, is what its comment says, and trains."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from functools import cache
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from compiler import compile_step
from examples.cyclegan.make_unpaired import blur, make
from examples.td3 import pendulum
from graphspec import load
from graphspec.diagnostics import SpecError
from graphspec.read.source import read_document
from runtime import build, emit
from runtime.data import open_feed

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SPECS = sorted(EXAMPLES.glob("*/*.yaml"))
WANTED = {
    "gan-digits",
    "simultaneous-gan",
    "ema-classifier",
    "cyclegan",
    "cyclegan-separate",
    "autoencoder",
    "custom-classes",
    "distillation",
    "mean-teacher",
    "byol",
    "dino",
    "moco",
    "td3",
    "dqn",
    "pcgrad",
    "wgan-gp",
    "stylegan2-lazy",
    "uncertainty",
    "fgsm",
    "tied-lm",
    "sac",
    "maml",
    "sam",
    "sparse-embeddings",
    "lookahead",
    "swa",
    "diffusion",
    "vq-vae",
    "simclr",
    "ppo",
    "progressive-gan",
}
CODE = {
    "custom-classes": "zoo",
    "distillation": "lessons",
    "mean-teacher": "partly",
    "byol": "views",
    "dqn": "cartpole",
    "tied-lm": "sums",
    "maml": "sines",
    "sparse-embeddings": "pairs",
    "ppo": "poles",
}
"""The module of their own that specs name, by folder."""
ON_TENSORFLOW = {"custom-classes": "keras_zoo"}
"""The same for TensorFlow, where it is another module."""
each_spec = pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)


@cache
def plan_of(name, order="fewest", settings=()):
    return compile_step(load(next(path for path in SPECS if path.stem == name), settings), order=order)


def trained(plan, path, steps):
    allow = CODE.values()
    step = build(plan, device="cpu", allow=allow)
    feed = open_feed(plan.spec, "train", seed=0, allow=allow, directory=path.parent)
    feed.attach(step)
    taken = (batch for _ in itertools.count() if (batch := feed.next()) is not None)
    outputs = [step(batch) for batch in itertools.islice(taken, steps)]
    return step, [{name: step.numpy(value) for name, value in each.items()} for each in outputs]


def test_the_examples_are_those_that_are_promised():
    assert {path.parent.name for path in SPECS} == WANTED


@each_spec
def test_check_gives_no_warning_and_nothing_is_assumed(path):
    plan = plan_of(path.stem)
    assert plan.warnings == ()
    assert plan.notes == ()


@pytest.mark.parametrize("path", [path for path in SPECS if path.stem != "byol"], ids=lambda path: path.stem)
def test_the_step_can_be_written_as_a_file_without_importing_what_it_names(path):
    source = emit(plan_of(path.stem))
    compile(source, f"{path.stem}.py", "exec")


def test_what_byols_own_function_returns_is_not_known_without_importing_it():
    plan = plan_of("byol")
    with pytest.raises(SpecError, match="the sizes of model 'projector' are not known"):
        emit(plan)


@cache
def read_schema(path):
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


@each_spec
def test_the_first_line_names_the_schema_and_the_schema_accepts_the_spec(path):
    start = "# yaml-language-server: $schema="
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(start)
    read_schema((path.parent / first.removeprefix(start)).resolve()).validate(read_document(path).data)


@each_spec
def test_a_spec_names_no_python_code_but_the_module_beside_it(path):
    named = set(re.findall(r"\b(\w+):[A-Za-z]", path.read_text(encoding="utf-8")))
    modules = (CODE.get(path.parent.name), ON_TENSORFLOW.get(path.parent.name))
    assert named == {name for name in modules if name is not None}
    assert all((path.parent / f"{name}.py").exists() for name in named)


@pytest.mark.sample(3)
@pytest.mark.needs("torch")
@each_spec
def test_the_example_trains(path, tmp_path, monkeypatch):
    home = shutil.copytree(EXAMPLES, tmp_path / "examples")
    np.savez(home / "td3" / "transitions.npz", **pendulum.record(count=2))
    copied = home / path.relative_to(EXAMPLES)
    monkeypatch.syspath_prepend(str(copied.parent))
    _, outputs = trained(compile_step(load(copied)), copied, 30)
    losses = [name for name, value in outputs[0].items() if value.ndim == 0]
    assert losses
    assert all(np.isfinite(each[name]) for each in outputs for name in losses if name in each)  # not all run always
    assert outputs[0][losses[0]] != outputs[-1][losses[0]]


ORDERS = ("fewest", "listed")
PUBLISHED = (
    "wgan-gp",
    "stylegan2-lazy",
    "stylegan2-factors",
    "uncertainty",
    "fgsm",
    "tied-lm",
    "sac",
    "maml",
    "sam",
    "lookahead",
    "swa",
    "diffusion",
    "vq-vae",
    "simclr",
    "ppo",
    "progressive-gan",
)
DEFERRALS = [
    ("gan-digits", "fewest", set()),
    ("gan-digits", "listed", set()),
    ("simultaneous-gan", "fewest", set()),
    ("simultaneous-gan", "listed", {"step_d"}),
    ("cyclegan", "fewest", set()),
    ("cyclegan-separate", "fewest", {"step_to_negative"}),
    ("cyclegan-separate", "listed", {"step_to_negative"}),
    ("autoencoder", "listed", set()),
    ("autoencoder", "fewest", set()),
    ("autoencoder-decoder-first", "listed", {"step_decoder"}),
    ("autoencoder-decoder-first", "fewest", set()),
    ("ema-classifier", "listed", set()),
    ("pcgrad", "listed", set()),
    ("pcgrad", "fewest", set()),
    *(
        (name, order, set())
        for name in ("distillation", "mean-teacher", "byol", "dino", "moco", "td3", "dqn")
        for order in ORDERS
    ),
    *((name, order, set()) for name in PUBLISHED for order in ORDERS),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "order", "deferred"), DEFERRALS)
def test_the_updates_that_wait_are_the_least_set(name, order, deferred):
    decisions = plan_of(name, order, ("join_gradients=false",)).to_json()["decisions"]  # a gradient for each update
    assert {each["subject"] for each in decisions if each["code"] == "DEFER"} == deferred


def test_explain_names_what_the_deferred_translator_waits_for():
    plan = plan_of("cyclegan-separate")
    place = Path(plan.spec.span("ops", "negative_again", key=True).place).name
    verdict = "apply step_to_negative is deferred after gradient step_to_digit"
    reason = f"gradient step_to_digit still reads to_negative.params@0 through negative_again ({place})"
    assert f"DEFER: {verdict}: {reason}" in plan.explain("step_to_negative")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("order", ["fewest", "listed", "latest"])
def test_an_autoencoder_ends_with_the_same_weights_whichever_update_is_listed_first(order):
    path = EXAMPLES / "autoencoder" / "autoencoder.yaml"
    one, _ = trained(plan_of("autoencoder"), path, 20)
    other, _ = trained(plan_of("autoencoder-decoder-first", order), path, 20)
    left, right = one.tensors(), other.tensors()
    assert left.keys() == right.keys()
    assert all(np.array_equal(one.numpy(left[name]), other.numpy(right[name])) for name in left)


@pytest.mark.needs("torch")
def test_two_updates_move_cyclegans_translators_as_one_update_does():
    path = EXAMPLES / "cyclegan" / "cyclegan.yaml"
    one, _ = trained(plan_of("cyclegan"), path, 5)
    other, _ = trained(plan_of("cyclegan-separate"), EXAMPLES / "cyclegan-separate" / "cyclegan-separate.yaml", 5)
    left, right = one.tensors(), other.tensors()
    weights = [name for name in left if name.startswith("models.")]
    assert len(weights) == 2 * 6 + 2 * 4
    for name in weights:
        np.testing.assert_allclose(one.numpy(left[name]), other.numpy(right[name]), atol=2e-6, err_msg=name)


def test_the_unpaired_sets_are_what_their_script_makes():
    stored = np.load(EXAMPLES / "cyclegan" / "unpaired.npz", allow_pickle=False)
    made = make()
    assert sorted(stored.files) == sorted(made)
    for name, array in made.items():
        np.testing.assert_array_equal(stored[name], array)
        assert array.shape == (400, 1, 8, 8)


def test_a_blurred_point_is_the_product_of_two_small_windows():
    point = np.zeros((1, 5, 5))
    point[0, 2, 2] = 1
    np.testing.assert_array_equal(blur(point)[0, 1:4, 1:4], np.outer([1, 2, 1], [1, 2, 1]) / 16)
    np.testing.assert_array_equal(blur(np.ones((2, 5, 5))), np.ones((2, 5, 5)))

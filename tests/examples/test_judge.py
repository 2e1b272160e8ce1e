"""The trials of the examples: trained too little they do not pass, and what they measure is what they say."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples import trial
from examples.distillation import lessons

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = (
    *("distillation", "mean-teacher", "byol", "td3", "dqn", "maml", "sam", "sparse-embeddings", "lookahead", "swa"),
    *("diffusion", "vq-vae", "simclr", "ppo", "progressive-gan"),
)


def judge(folder, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(EXAMPLES / "judge.py"), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def digits():
    with np.load(ROOT / "runtime" / "datasets" / "digits.npz", allow_pickle=False) as held:
        return held["image"], held["label"], held["is_test"]


@pytest.mark.long
@pytest.mark.needs("torch")
def test_an_example_that_was_hardly_trained_does_not_pass(tmp_path):
    done = judge(tmp_path, *NAMES, "--steps", "2", "--seed", "3")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    for name in NAMES:
        assert f"\nFAIL: {name}, seed 3, " in done.stdout
        assert (tmp_path / "judged" / name / "run" / "metrics.jsonl").exists()
    # mean-teacher also without its unlabelled digits, maml also of first order, sam and lookahead also as plain SGD,
    # rows also dense, swa also with the last weights and with the last statistics; the judge of a GAN
    assert done.stdout.count("$ stepgraph run ") == len(NAMES) + 8
    assert done.stderr == ""


def test_an_unknown_example_is_wrong_usage(tmp_path):
    done = judge(tmp_path, "byl")
    assert done.returncode == 2
    assert "no example 'byl'" in done.stderr


@pytest.mark.parametrize(("value", "bar", "passed"), [(0.5, 0.5, True), (0.4, 0.5, False), (0.0, None, True)])
def test_a_figure_passes_from_its_bar_on(value, bar, passed):
    figure = trial.Figure(name="share", value=value, bar=bar)
    assert figure.passed is passed
    assert ("FAIL" in figure.line) is not passed


def test_the_last_value_of_each_figure_is_what_counts(tmp_path):
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "eval/accuracy": 0.1}, {"step": 3, "loss": 1.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert trial.read_last(tmp_path) == {"step": 3, "loss": 1.0, "eval/accuracy": 0.1}


def test_the_few_digits_are_as_many_of_each_class_and_none_is_held_out():
    given = lessons.lessons(50, seed=1)
    few = {image.tobytes(): label for image, label in zip(given["few_image"], given["few_label"], strict=True)}
    assert sorted(few.values()) == sorted([*range(10)] * 5)
    images, labels, is_test = digits()
    scaled = (images[~is_test] / 8 - 1).astype(np.float32)
    taught = dict(zip((image.tobytes() for image in scaled), labels[~is_test], strict=True))
    assert few.items() <= taught.items()


def test_mean_teacher_and_distillation_choose_the_same_fifty():
    partly = runpy.run_path(str(EXAMPLES / "mean-teacher" / "partly.py"))["digits"](50, 1)
    given = lessons.lessons(50, seed=1)
    np.testing.assert_array_equal(partly["image"], given["few_image"])
    np.testing.assert_array_equal(partly["label"], given["few_label"])
    np.testing.assert_array_equal(partly["unlabelled"], given["image"])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("path", ["byol/views.py", "mean-teacher/partly.py"])
def test_a_shift_moves_each_image_by_its_own_offset(path):
    import torch

    shift = runpy.run_path(str(EXAMPLES / path))["shift"]
    image = torch.arange(12.0).reshape(1, 1, 3, 4).repeat(2, 1, 1, 1)
    moved = shift(image, torch.tensor([[0, 0], [1, -1]]))
    assert moved[0].equal(image[0])
    assert moved[1, 0].tolist() == [[-1, 4, 5, 6], [-1, 8, 9, 10], [-1, -1, -1, -1]]


def test_the_probe_is_ridge_regression_onto_the_classes(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    probe = runpy.run_path(str(EXAMPLES / "probe.py"))["probe"]
    random = np.random.default_rng(0)
    known, asked, label = random.normal(size=(50, 6)), random.normal(size=(99, 6)), random.integers(10, size=50)
    middle = known.mean(axis=0)
    size = np.sqrt(np.square(known - middle).sum() / 50)
    wide = np.vstack([(known - middle) / size, np.eye(6)])  # the penalty as more rows of least squares
    goals = np.vstack([np.eye(10)[label] - np.eye(10)[label].mean(axis=0), np.zeros((6, 10))])
    answers = ((asked - middle) / size @ np.linalg.lstsq(wide, goals)[0]).argmax(axis=1)
    assert probe(known, label, asked, answers) == 1.0
    assert probe(known, label, asked, (answers + 1) % 10) == 0.0

"""The demo passes its own judgement, and its judgement can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from examples import demo
from graphspec import load
from runtime import build

ROOT = Path(__file__).parents[2]


class Judge:
    """A classifier that gives the probabilities it was told to."""

    def __init__(self, probabilities):
        self.probabilities = np.array(probabilities)

    def __call__(self, batch, mode):
        return {"probabilities": self.probabilities[: len(batch["image"])]}

    def numpy(self, value):
        return value


def images(count, value=0.0):
    return np.full((count, 1, 8, 8), value, np.float32)


@pytest.mark.long
@pytest.mark.needs("torch")
def test_the_demo_trains_a_gan_that_passes_and_tells_why_an_update_waits(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--seed", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "PASS: seed 1" in done.stdout
    assert "FAIL" not in done.stdout
    assert "deferred after gradient step_to_digit" in done.stdout
    run = tmp_path / "demo-output" / "seed-1" / "gan"
    assert {"samples.png", "curves.png", "checkpoints", "metrics.jsonl"} <= {path.name for path in run.iterdir()}


@pytest.mark.needs("torch")
def test_an_untrained_gan_does_not_pass():
    gan, classifier = (build(compile_step(load(spec)), device="cpu") for spec in (demo.GAN, demo.CLASSIFIER))
    assert demo.draw_samples(gan).shape == (500, 1, 8, 8)
    assert not demo.judge_all(gan, classifier, seed=0)


def test_a_class_counts_from_three_per_cent_of_all_images_held_with_confidence():
    rows = [[0.95, 0.05]] * 94 + [[0.05, 0.95]] * 3 + [[0.15, 0.85]] * 3
    judged = demo.judge(images(100), Judge(rows), images(1))
    assert (judged.confident, judged.classes) == (0.97, 2)
    assert demo.judge(images(100), Judge(rows[:95] + rows[97:] + rows[:2]), images(1)).classes == 1


def test_the_distance_is_that_of_a_search_over_all_pairs():
    drawn = np.random.default_rng(0)
    some, train = (drawn.uniform(-1, 1, (n, 1, 8, 8)).astype(np.float32) for n in (7, 11))
    nearest = [min(np.linalg.norm((one - other) / 2) for other in train.astype(np.float64)) for one in some]
    assert demo.measure_distance(some, train) == pytest.approx(np.mean(nearest), rel=1e-12)
    assert demo.measure_distance(images(1, 1.0), images(1, -1.0)) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("confident", "classes", "distance", "passed"),
    [(0.7, 9, 1.4, True), (0.69, 9, 1.4, False), (0.7, 8, 1.4, False), (0.7, 9, 1.41, False)],
)
def test_every_bar_can_fail_the_samples(confident, classes, distance, passed):
    judged = demo.Judgement(confident=confident, classes=classes, distance=distance)
    assert all(judged.verdicts()) == passed


def test_each_run_of_the_demo_has_a_folder_of_its_own(tmp_path):
    folders = [demo.make_folder(tmp_path, 3).name for _ in range(3)]
    assert folders == ["seed-3", "seed-3-2", "seed-3-3"]

"""One pass over a data set: figures against means over all samples, taken by numpy, and passes that repeat."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler import compile_step
from graphspec.loading import load
from runtime import build
from runtime.interrupt import Interrupt
from runtime.train.evaluate import Evaluation

SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=6)


class Exam:
    """Batches of samples, and a step that gives their mean and a value that runs."""

    def __init__(self, batches, ask=None):
        self.batches, self.ask, self.resets, self.seen = batches, ask, [], 0

    def reset(self, mode="eval"):
        self.resets.append(mode)

    def one_pass(self):
        for batch in self.batches:
            self.seen += 1
            yield {"x": batch}
            if self.ask is not None:
                self.ask()

    def rows(self, batch):
        return len(batch["x"])

    def __call__(self, batch, mode="train"):
        return {"loss": batch["x"].mean(), "running": float(self.seen), "scores": batch["x"]}

    def numpy(self, value):
        return np.asarray(value)


def evaluate(exam, interrupt=None):
    return Evaluation(step=exam, feed=exam, mode="test", metrics=frozenset({"running"})).run(interrupt)


@given(SIZES, st.integers(0, 100))
def test_a_loss_is_the_mean_over_all_samples_however_they_are_batched(sizes, seed):
    batches = [np.random.default_rng(seed + index).normal(size=(size, 2)) for index, size in enumerate(sizes)]
    figures = evaluate(Exam(batches))
    assert figures["loss"] == pytest.approx(np.concatenate(batches).mean(), rel=1e-12, abs=1e-14)
    assert figures["running"] == len(sizes)  # a metric's last value is that of the whole pass
    assert list(figures) == ["loss", "running"]


def test_a_pass_over_nothing_has_no_figures():
    exam = Exam([])
    assert (evaluate(exam), exam.resets) == ({}, ["test"])


def test_an_interrupt_ends_it_before_the_next_batch_and_gives_nothing():
    interrupt = Interrupt()
    exam = Exam([np.ones((2, 2))] * 3, ask=lambda: interrupt.ask("SIGINT"))
    assert evaluate(exam, interrupt) is None
    assert exam.seen == 2


def test_an_interrupt_after_the_last_batch_loses_nothing():
    interrupt = Interrupt()
    exam = Exam([np.ones((2, 2))], ask=lambda: interrupt.ask("SIGINT"))
    assert evaluate(exam, interrupt) == {"loss": 1.0, "running": 1.0}


SPEC = """
graphspec: 1
name: noisy
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  noise: {random: normal, like: x}
  blurred: {call: add, inputs: [x, noise]}
  scores: {forward: net, inputs: blurred}
  loss: {loss: cross_entropy, inputs: [scores, y]}
  learn: {update: net, loss: loss}
  accuracy: {metric: accuracy, inputs: [scores, y]}
outputs: [loss, accuracy]
data: {train: {source: npz, path: x.npz, batch: 8}}
"""


@pytest.fixture(scope="module")
def step():
    return build(compile_step(load(SPEC)), device="cpu", seed=2)


def draw(size, seed):
    drawn = np.random.default_rng(seed)
    return {"x": drawn.normal(size=(size, 4)).astype("float32"), "y": drawn.integers(0, 3, size)}


@pytest.mark.needs("torch")
def test_every_pass_is_the_same_whatever_was_done_between(step):
    feed = SimpleNamespace(one_pass=lambda: map(draw, (8, 8, 5), (1, 2, 3)), rows=lambda batch: len(batch["x"]))
    evaluation = Evaluation.of(step.spec, step, feed, "eval")
    assert evaluation.metrics == {"accuracy"}
    first = evaluation.run()
    step(draw(8, 9), mode="eval")  # not a part of any pass
    assert evaluation.run() == first
    assert (first["accuracy"] * 21) % 1 == pytest.approx(0, abs=1e-4)  # of 21 samples, not of three batches
    step(draw(8, 4))
    assert evaluation.run() != first

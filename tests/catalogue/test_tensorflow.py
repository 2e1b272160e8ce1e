"""Mistakes of loops in TensorFlow and Keras: the specs run there as the references do, the loops by hand do not."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from runtime import build
from tests.catalogue.mathematics import World, descend, mlp, moved, mse, normed
from tests.catalogue.test_graphs import by_one_loss
from tests.catalogue.test_owners import one_step_for_all
from tests.catalogue.trial import SAME, WRONG, Trial, batches, plan_of, world_of


def train(name: str, *overrides: str, order: str = "fewest") -> Trial:
    """Take six steps of a spec in float64 on TensorFlow."""
    step = build(plan_of(name, *overrides, order=order, backend="tensorflow"), device="cpu", dtype="float64")

    def world():
        return world_of({path: torch.from_numpy(step.numpy(each)) for path, each in step.tensors().items()})

    start = world()
    for batch in batches(step.plan):
        step({key: value.numpy() for key, value in batch.items()})
    return Trial(plan=step.plan, start=start, end=world(), outputs=())


def test_a_tape_is_asked_once_or_kept_for_its_second_gradient():
    for setting in ("join_gradients=true", "join_gradients=false"):
        assert train("one-loss-two-updates", setting, order="listed").error_of(by_one_loss) <= SAME
    w = tf.Variable(2.0)
    with tf.GradientTape() as tape:
        loss = w * w
    tape.gradient(loss, w)
    with pytest.raises(RuntimeError, match="can only be used to compute one set of gradients"):
        tape.gradient(loss, w)


def test_slots_are_there_before_anything_is_traced():
    assert train("one-owner").error_of(one_step_for_all) <= SAME
    body, heads = tf.Variable(1.0), (tf.Variable(1.0), tf.Variable(1.0))
    adam = keras.optimizers.Adam()

    @tf.function
    def step(head: int):
        """Step the body and a head: traced once per head."""
        adam.apply_gradients([(tf.constant(1.0), each) for each in (body, heads[head])])

    step(0)
    with pytest.raises(ValueError, match="Unknown variable"):
        step(1)


def taught_by_a_drifting_teacher(world: World, x: torch.Tensor) -> World:
    """Move a student towards what a teacher in train mode gives, whose statistics move."""
    aim = normed(world["teacher"], x, train=True)
    student = descend(lambda w: mse(mlp(w, x), aim), world["student"])
    return {"student": student, "teacher": moved(world["teacher"], x)}


def test_a_frozen_model_normalizes_as_its_mode_says():
    trial = train("teacher-in-train-mode")
    assert trial.error_of(taught_by_a_drifting_teacher) <= SAME
    (x, *_) = (batch["x"] for batch in batches(trial.plan))
    hidden = (x @ trial.start["teacher"]["0.weight"].T + trial.start["teacher"]["0.bias"]).numpy()
    norm = keras.layers.BatchNormalization(epsilon=1e-5, dtype="float64")
    by_statistics = np.array(norm(hidden, training=True))
    norm.trainable = False  # in Keras this means more than that nothing is trained
    assert np.abs(np.array(norm(hidden, training=True)) - by_statistics).max() > WRONG

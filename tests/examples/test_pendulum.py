"""The pendulum of the example td3 is that of Gymnasium, and its recording fits together."""

from __future__ import annotations

import numpy as np
import pytest

from examples.td3.pendulum import MOST_SPEED, REWARD_SCALE, Pendulums, play, record

gymnasium = pytest.importorskip("gymnasium")


def test_one_push_is_one_step_of_gymnasiums_pendulum():
    world = gymnasium.make("Pendulum-v1").unwrapped
    world.reset(seed=0)
    random = np.random.default_rng(0)
    for angle, speed, action in random.uniform([-9, -8, -1.5], [9, 8, 1.5], (200, 3)):
        world.state = np.array([angle, speed])
        seen, reward, *_ = world.step(np.array([2 * action]))
        ours = Pendulums(angle=np.array([angle]), speed=np.array([speed]))
        assert ours.push(np.array([action]))[0] == pytest.approx(reward, abs=1e-9)
        np.testing.assert_allclose(ours.observe()[0] * [1, 1, MOST_SPEED], seen, atol=1e-5)


def test_each_recorded_transition_begins_where_the_one_before_it_ended():
    recorded = record(count=3, steps=5)
    assert {name: column.shape for name, column in recorded.items()} == {
        "state": (15, 3), "action": (15, 1), "reward": (15, 1), "next_state": (15, 3), "done": (15, 1)
    }  # fmt: skip
    np.testing.assert_array_equal(recorded["next_state"][:-3], recorded["state"][3:])
    assert np.abs(recorded["action"]).max() <= 1
    assert recorded["reward"].min() >= REWARD_SCALE * -16.28


def test_a_return_adds_up_the_rewards_of_ten_seconds():
    hanging = play(lambda state: np.zeros(len(state)), count=2, steps=1)
    assert hanging.shape == (2,)
    longer = play(lambda state: np.zeros(len(state)), count=2, steps=2)
    assert (longer < hanging).all()

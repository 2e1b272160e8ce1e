"""The poles of the example ppo obey the equations of motion, and what is played with them fits together."""

from __future__ import annotations

import numpy as np
import pytest

from examples.ppo import poles

STATES = np.random.default_rng(0).uniform([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3], (200, 4))
FORCES = np.where(np.arange(200) % 2 == 1, 10.0, -10.0)
MOVES, COUNT = 60, 3


class Leaning:
    """A step that mostly pushes the cart to the side that the pole leans to, and whose critic looks at the angle."""

    def __call__(self, batch, mode):
        angle = batch["state"][:, 2:3]
        right = np.where(angle > 0, 0.95, 0.05)
        return {"chances": np.concatenate([1 - right, right], axis=1), "value": 10 * np.cos(angle)}

    def numpy(self, value):
        return value


def rollouts(**options):
    made = poles.Rollouts(seed=4, **{"poles": COUNT, "moves": MOVES, "discount": 0.9, "decay": 0.8, **options})
    made.attach(Leaning())
    return made


def test_accelerations_solve_the_equations_of_motion():
    """The generalized forces on cart and pole are the matrix of masses times the two accelerations."""
    lever, turning = 0.1 * 0.5, STATES[:, 3]
    sine, cosine = np.sin(STATES[:, 2]), np.cos(STATES[:, 2])
    on_cart = FORCES + lever * turning**2 * sine - 0.0005 * np.sign(STATES[:, 1])
    on_pole = lever * 9.8 * sine - 0.000002 * turning
    whole, same = np.full(200, 1.1), np.full(200, 4 / 3 * lever * 0.5)
    masses = np.stack([np.stack([whole, lever * cosine], 1), np.stack([lever * cosine, same], 1)], 1)
    expected = np.linalg.solve(masses, np.stack([on_cart, on_pole], 1)[:, :, np.newaxis])[:, :, 0]
    np.testing.assert_allclose(np.stack(poles.accelerate(STATES, FORCES), 1), expected, rtol=1e-12)


def test_without_friction_a_push_is_one_step_of_gymnasiums_cart_pole(monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setattr(poles, "CART_FRICTION", 0.0)
    monkeypatch.setattr(poles, "POLE_FRICTION", 0.0)
    world, ours = gymnasium.make("CartPole-v1").unwrapped, poles.Poles(200, np.random.default_rng(0))
    world.reset(seed=0)
    ours.state, action = STATES.copy(), (FORCES > 0).astype(np.int64)
    fell = ours.push(action)
    for row, state in enumerate(STATES):
        world.state, world.steps_beyond_terminated = state, None
        _, _, lost, _, _ = world.step(int(action[row]))
        np.testing.assert_allclose(world.state, ours.state[row], atol=1e-12)
        assert lost == fell[row]
    assert 0 < fell.sum() < 200


def test_an_advantage_adds_up_surprises_until_its_game_is_over():
    random = np.random.default_rng(1)
    surprise, over = random.normal(size=(MOVES, COUNT)), random.random((MOVES, COUNT)) < 0.1
    found = poles.estimate(surprise, 0.7 * ~over)
    for pole in range(COUNT):
        for begin in range(MOVES):
            ends = [*np.flatnonzero(over[begin:, pole]), MOVES - begin - 1]
            rest = surprise[begin : begin + ends[0] + 1, pole]
            assert found[begin, pole] == pytest.approx(rest @ 0.7 ** np.arange(len(rest)))


def test_a_batch_is_what_was_played_and_no_value_follows_a_fall(monkeypatch):
    monkeypatch.setattr(poles, "LONGEST", 25)  # so that games are cut off as well
    made = rollouts(decay=0.0)  # then the goal is the reward, and what the critic expects after the move
    batch = made.play()
    shapes = {"state": 4, "action": 1, "advantage": 1, "goal": 1}
    assert {name: column.shape for name, column in batch.items()} == {
        **{name: (MOVES * COUNT, size) for name, size in shapes.items()}, "score": ()
    }  # fmt: skip
    ends = {True: 0, False: 0}
    for row in range((MOVES - 1) * COUNT):
        game = poles.Poles(1, np.random.default_rng(0))
        game.state = batch["state"][row : row + 1].astype(np.float64)
        fell = game.push(batch["action"][row])[0]
        later = 0 if fell else 0.9 * 10 * np.cos(game.state[0, 2])
        assert batch["goal"][row, 0] == pytest.approx(1 + later, abs=1e-5)
        ends[fell] += not np.allclose(batch["state"][row + COUNT], game.state[0], atol=1e-5)
    assert ends[True] + ends[False] == len(made.games) - 1 > 5
    assert ends[False] > 0


def test_rollouts_with_the_state_of_others_go_on_as_those_do():
    first, second = rollouts(), rollouts()
    first.play()
    second.load_state_dict(first.state_dict())
    ours, theirs = second.play(), first.play()
    for name, column in theirs.items():
        np.testing.assert_array_equal(ours[name], column)


def test_a_game_ends_where_the_pole_falls_or_time_is_up():
    class Still(Leaning):
        def __call__(self, batch, mode):
            return {"chances": np.tile([0.9, 0.1], (len(batch["state"]), 1))}

    assert poles.watch(Still(), games=5, seed=0).max() < 15  # pushing to one side alone
    leaning = poles.watch(Leaning(), games=5, seed=0)
    assert 20 < leaning.mean() < poles.LONGEST

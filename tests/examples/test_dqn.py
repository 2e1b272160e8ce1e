"""The player of the example dqn: it remembers what it saw, and goes on as if it had never been stopped."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from examples.dqn.cartpole import LONGEST, REWARD, SCALE, Game, Player, watch
from runtime.checkpoints import read_checkpoint
from runtime.cli import execute

SPEC = Path(__file__).parents[2] / "examples" / "dqn" / "dqn.yaml"


class Leaning:
    """A step that pushes the cart to the side that the pole leans to."""

    def __call__(self, batch, mode):
        return {"best": (batch["state"][:, 2] > 0).astype(int)}

    def numpy(self, value):
        return value


def player(**options):
    made = Player(seed=4, batch=8, **{"memory": 300, "before": 50, "until": 51, **options})
    made.attach(Leaning())
    return made


def run(folder, *words):
    settings = ("-s", "data.train.args.until=1001", "--device", "cpu", "--allow", "cartpole", "--out", str(folder))
    assert execute(["run", str(SPEC), *settings, *words]) == 0


def test_what_is_remembered_follows_from_what_was_done():
    made = player()
    next(iter(made))
    memory, game = made.memory, Game(0)
    for row in range(made.moves):
        game.begin()
        game.world.state = memory["state"][row].astype(np.float64) * SCALE
        assert game.move(int(memory["action"][row, 0])) == memory["fell"][row, 0]
        np.testing.assert_allclose(game.state, memory["next_state"][row], atol=1e-5)
    assert set(memory["reward"][: made.moves].flat) == {np.float32(REWARD)}


def test_a_player_with_the_state_of_another_goes_on_as_that_one_does():
    first, second = player(), player()
    list(islice(first, 70))  # the memory is full and begins to forget
    second.load_state_dict(first.state_dict())
    for ours, theirs in zip(islice(second, 100), islice(first, 100), strict=True):
        for name, column in theirs.items():
            np.testing.assert_array_equal(ours[name], column)


def test_a_game_ends_where_the_pole_falls_or_time_is_up():
    class Still(Leaning):
        def __call__(self, batch, mode):
            return {"best": np.zeros(1, int)}

    assert watch(Still(), games=5, seed=0).max() < 15  # pushing to one side alone
    leaning = watch(Leaning(), games=5, seed=0)
    assert 20 < leaning.mean() < LONGEST


@pytest.mark.needs("torch")
def test_a_run_that_goes_on_has_the_weights_and_the_memory_of_one_that_never_stopped(tmp_path):
    run(tmp_path / "whole", "--steps", "40")
    run(tmp_path / "parts", "--steps", "15")
    run(tmp_path / "parts", "--steps", "40", "--resume")
    whole, parts = (tmp_path / name / "checkpoints" / "step-40" for name in ("whole", "parts"))
    assert (whole / "state.safetensors").read_bytes() == (parts / "state.safetensors").read_bytes()
    assert read_checkpoint(whole).sections["data"] == read_checkpoint(parts).sections["data"]  # the game as it stands

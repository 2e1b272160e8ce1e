"""A player of CartPole-v1 with a memory: the source of the batches of dqn.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

LONGEST = 500
"""Steps after which a game is cut off."""
SCALE = np.array([2.4, 3.0, 0.21, 3.0], np.float32)
"""Place, speed, angle and its speed are divided by it, so that a net sees numbers of one size."""
REWARD = 0.1
"""For every step; that much makes values of at most 10."""
COLUMNS = {"state": 4, "action": 1, "reward": 1, "next_state": 4, "fell": 1}

Array = npt.NDArray[np.generic]
Batch = dict[str, Array]


class Step(Protocol):
    """What playing needs of a built step."""

    def __call__(self, batch: Mapping[str, object], mode: str) -> Mapping[str, object]:
        """Run a mode."""
        ...

    def numpy(self, value: object) -> Array:
        """Return an output as an array of the host."""
        ...


def choose(step: Step, state: npt.NDArray[np.float32]) -> int:
    """Return the action that a step finds best in a state [4]."""
    return int(step.numpy(step({"state": state[np.newaxis]}, mode="infer")["best"])[0])


class Game:
    """One cart with its pole."""

    def __init__(self, seed: int) -> None:
        self.world = gymnasium.make("CartPole-v1").unwrapped  # its limit of steps is in `step` below
        self.length = 0
        self.world.reset(seed=seed)

    @property
    def state(self) -> npt.NDArray[np.float32]:
        """Return what there is to see, [4]."""
        return np.asarray(self.world.state, np.float32) / SCALE

    def move(self, action: int) -> bool:
        """Push the cart to one side; return whether the game is lost."""
        _, _, fell, _, _ = self.world.step(action)
        self.length += 1
        return fell

    def begin(self) -> None:
        """Begin a new game."""
        self.world.reset()
        self.length = 0

    def state_dict(self) -> dict[str, object]:
        """Return the game as it stands, with the random numbers of those that come."""
        return {
            "world": np.asarray(self.world.state),
            "length": self.length,
            "random": self.world.np_random.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on with a game."""
        self.begin()
        self.world.state = state["world"]
        self.length = state["length"]
        self.world.np_random.bit_generator.state = state["random"]


class Player:
    """Plays four moves for every batch, at first at random and later as the net finds best, and remembers them all.

    The state of the player is in its attributes alone: `iter` begins nothing anew, so that a loaded state goes on.
    """

    def __init__(
        self, *, seed: int, batch: int, memory: int = 50_000, before: int = 1_000, until: int = 11_000
    ) -> None:
        self.batch, self.before, self.until = batch, before, until
        self.random = np.random.default_rng(seed)
        self.game = Game(seed)
        self.games = [0.0]
        """The lengths of the last games."""
        self.moves = 0
        self.memory = {name: np.zeros((memory, size), np.float32) for name, size in COLUMNS.items()}
        self.memory["action"] = self.memory["action"].astype(np.int64)

    def attach(self, step: Step) -> None:
        """Take the step to play with."""
        self.step = step

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches of what is remembered, for ever."""
        while True:
            for _ in range(max(4, self.before - self.moves)):
                self.play()
            chosen = self.random.integers(self.remembered, size=self.batch)
            batch = {name: column[chosen] for name, column in self.memory.items()}
            yield {**batch, "score": np.array(np.mean(self.games), np.float32)}

    @property
    def remembered(self) -> int:
        """Return how many moves are remembered."""
        return min(self.moves, len(self.memory["action"]))

    def play(self) -> None:
        """Make a move and remember it; begin a new game where this one is over."""
        state, action = self.game.state, self.act()
        fell = self.game.move(action)
        seen = {"state": state, "action": action, "reward": REWARD, "next_state": self.game.state, "fell": fell}
        for name, value in seen.items():
            self.memory[name][self.moves % len(self.memory[name])] = value
        self.moves += 1
        if fell or self.game.length == LONGEST:
            self.games = [*self.games[-19:], float(self.game.length)]
            self.game.begin()

    def act(self) -> int:
        """Return a random action with a chance that falls from 1 to 0.05, else the best."""
        done = (self.moves - self.before) / (self.until - self.before)
        if self.random.random() < 1 - 0.95 * np.clip(done, 0, 1):
            return int(self.random.integers(2))
        return choose(self.step, self.game.state)

    def state_dict(self) -> dict[str, object]:
        """Return all that the player was, for a checkpoint."""
        return {
            "game": self.game.state_dict(),
            "games": self.games,
            "memory": {name: column[: self.remembered] for name, column in self.memory.items()},
            "moves": self.moves,
            "random": self.random.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Be again what the player was."""
        self.game.load_state_dict(state["game"])
        self.games, self.moves = state["games"], state["moves"]
        for name, column in state["memory"].items():
            self.memory[name][: len(column)] = column
        self.random.bit_generator.state = state["random"]


def watch(step: Step, games: int, seed: int) -> npt.NDArray[np.int64]:
    """Return how long a step balances the pole in some games, without any random action."""
    game, lengths = Game(seed), []
    for _ in range(games):
        game.begin()
        while not game.move(choose(step, game.state)) and game.length < LONGEST:
            pass
        lengths.append(game.length)
    return np.array(lengths)

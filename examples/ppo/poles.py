"""Poles on carts, and what a policy has just played with them: the source of the batches of ppo.yaml.

The equations and constants are those of Barto, Sutton and Anderson (1983), with the friction that later versions leave
out. How a game begins, and that it is cut off after 500 moves, is as in CartPole-v1 of Gymnasium.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

GRAVITY = 9.8
"""In m/s², downwards."""
CART, POLE = 1.0, 0.1
"""Masses in kg."""
HALF_LENGTH = 0.5
"""Of the pole, in m."""
CART_FRICTION, POLE_FRICTION = 0.0005, 0.000002
"""Of the cart on its track, and of the pole on the cart."""
FORCE = 10.0
"""In N: to one side or the other, never none."""
INTERVAL = 0.02
"""Seconds between two moves."""
WIDTH, STEEPEST = 2.4, np.radians(12)
"""How far from the middle, in m, and from upright, in radians, a game is not lost."""
LONGEST = 500
"""Moves after which a game is cut off."""

Numbers = npt.NDArray[np.float64]
Array = npt.NDArray[np.generic]


class Step(Protocol):
    """What playing needs of a built step."""

    def __call__(self, batch: Mapping[str, object], mode: str) -> Mapping[str, object]:
        """Run a mode."""
        ...

    def numpy(self, value: object) -> Array:
        """Return an output as an array of the host."""
        ...


def accelerate(state: Numbers, force: Numbers) -> tuple[Numbers, Numbers]:
    """Return the accelerations of carts in m/s² and of poles in rad/s², [n] each, in states [n, 4] under forces [n]."""
    _, speed, angle, turning = state.T
    sine, cosine, mass = np.sin(angle), np.cos(angle), CART + POLE
    drag = CART_FRICTION * np.sign(speed)
    push = (-force - POLE * HALF_LENGTH * turning**2 * sine + drag) / mass
    slowed = POLE_FRICTION * turning / (POLE * HALF_LENGTH)
    turn = (GRAVITY * sine + cosine * push - slowed) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / mass))
    return (force + POLE * HALF_LENGTH * (turning**2 * sine - turn * cosine) - drag) / mass, turn


class Poles:
    """Carts with poles; `state` [n, 4]: place in m, speed, angle from upright in radians, and how fast that grows."""

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.random = random
        self.state = np.zeros((count, 4))
        self.lengths = np.zeros(count, np.int64)
        """How many moves each game has had."""
        self.begin(np.ones(count, bool))

    def begin(self, which: npt.NDArray[np.bool_]) -> None:
        """Begin some games anew, almost upright and still."""
        self.state[which] = self.random.uniform(-0.05, 0.05, (which.sum(), 4))
        self.lengths[which] = 0

    def push(self, action: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Let an interval pass with pushes to the left (0) or the right (1); return which games are lost."""
        cart, pole = accelerate(self.state, np.where(action == 1, FORCE, -FORCE))
        _, speed, _, turning = self.state.T
        self.state = self.state + INTERVAL * np.stack([speed, cart, turning, pole], axis=1)
        self.lengths += 1
        return (np.abs(self.state[:, 0]) > WIDTH) | (np.abs(self.state[:, 2]) > STEEPEST)

    def state_dict(self) -> dict[str, object]:
        """Return the games as they stand, with the random numbers of those that come."""
        return {"state": self.state, "lengths": self.lengths, "random": self.random.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on with games."""
        self.state, self.lengths = np.array(state["state"]), np.array(state["lengths"])
        self.random.bit_generator.state = state["random"]


class Rollouts:
    """Plays some moves with all poles for every batch, as the policy of the step draws them.

    The state is in the attributes alone: `iter` begins nothing anew, so that a loaded state goes on.
    """

    def __init__(self, *, seed: int, poles: int, moves: int, discount: float, decay: float) -> None:
        self.moves, self.discount, self.decay = moves, discount, decay
        self.poles = Poles(poles, np.random.default_rng(seed))
        self.games = [0.0]
        """The lengths of the last games."""

    def attach(self, step: Step) -> None:
        """Take the step to play with."""
        self.step = step

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield what was just played, for ever: rows are the moves of all poles, one move after another."""
        while True:
            yield self.play()

    def play(self) -> dict[str, Array]:
        """Play the moves of a batch."""
        rows = [self.move() for _ in range(self.moves)]
        state, action, after, fell, over = (np.stack(column) for column in zip(*rows, strict=True))
        value, later = self.judge(state), self.judge(after)
        advantage = estimate(1.0 + self.discount * ~fell * later - value, self.discount * self.decay * ~over)
        columns = {"state": state, "action": action[..., None], "advantage": advantage[..., None]}
        columns["goal"] = (advantage + value)[..., None]
        batch = {name: column.reshape(-1, column.shape[-1]) for name, column in columns.items()}
        floats = {name: column.astype(np.float32) for name, column in batch.items() if name != "action"}
        return {**floats, "action": batch["action"], "score": np.array(np.mean(self.games), np.float32)}

    def move(self) -> tuple[Array, ...]:
        """Make a move with every pole; return states, actions, states after it, who fell, and which games are over."""
        state = self.poles.state
        chance = act(self.step, state, "chances")[:, 1]
        action = (self.poles.random.random(len(state)) < chance).astype(np.int64)
        fell = self.poles.push(action)
        after, over = self.poles.state.copy(), fell | (self.poles.lengths == LONGEST)
        self.games = [*self.games, *map(float, self.poles.lengths[over])][-20:]
        self.poles.begin(over)
        return state.copy(), action, after, fell, over

    def judge(self, states: Numbers) -> Numbers:
        """Return what the critic expects of states [moves, n, 4]."""
        return act(self.step, states.reshape(-1, 4), "value").reshape(states.shape[:-1])

    def state_dict(self) -> dict[str, object]:
        """Return all that there is to go on from, for a checkpoint."""
        return {"poles": self.poles.state_dict(), "games": self.games}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Be again what the rollouts were."""
        self.poles.load_state_dict(state["poles"])
        self.games = state["games"]


def act(step: Step, states: Numbers, output: str) -> Numbers:
    """Return what a step says of states [n, 4] in mode infer."""
    return step.numpy(step({"state": states.astype(np.float32)}, mode="infer")[output]).astype(np.float64)


def estimate(surprise: Numbers, kept: Numbers) -> Numbers:
    """Return advantages [moves, n] by GAE (Schulman et al. 2016): a surprise, plus a share of the next advantage."""
    found, last = np.zeros_like(surprise), np.zeros(surprise.shape[1:])
    for at in reversed(range(len(surprise))):
        found[at] = last = surprise[at] + kept[at] * last
    return found


def watch(step: Step, games: int, seed: int) -> npt.NDArray[np.int64]:
    """Return how long a step balances the poles of some games, with the likelier action of the two."""
    poles, lengths = Poles(games, np.random.default_rng(seed)), np.zeros(games, np.int64)
    playing = np.ones(games, bool)
    while playing.any():
        fell = poles.push(act(step, poles.state, "chances").argmax(axis=1))
        lengths[playing] += 1
        playing &= ~fell & (lengths < LONGEST)
    return lengths

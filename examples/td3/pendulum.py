"""A pendulum that a weak motor is to swing up and hold there; as a script, it records transitions.npz for td3.yaml.

The equations and the cost are those of the classic task (Pendulum-v1 of Gymnasium), for many pendulums at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

GRAVITY = 10.0
INTERVAL = 0.05
"""Seconds between two actions."""
MOST_SPEED = 8.0
MOST_TORQUE = 2.0
REWARD_SCALE = 0.1
"""Recorded rewards lie between -1.6 and 0."""

Numbers = npt.NDArray[np.floating]
Policy = Callable[[npt.NDArray[np.float32]], Numbers]
"""From states [n, 3] to actions [n] between -1 and 1."""


@dataclass(slots=True, kw_only=True)
class Pendulums:
    """Pendulums [n]: the angle from upright, in radians, and the speed, in radians per second."""

    angle: Numbers
    speed: Numbers

    @classmethod
    def hang(cls, count: int, random: np.random.Generator) -> Pendulums:
        """Return pendulums somewhere, slow."""
        return cls(angle=random.uniform(-np.pi, np.pi, count), speed=random.uniform(-1, 1, count))

    def observe(self) -> npt.NDArray[np.float32]:
        """Return what a policy sees, [n, 3]: where the end is, and the speed as a share of the greatest."""
        seen = [np.cos(self.angle), np.sin(self.angle), self.speed / MOST_SPEED]
        return np.stack(seen, axis=1).astype(np.float32)

    def push(self, action: Numbers) -> Numbers:
        """Let an interval pass with torques from -1 to 1; return the rewards, of which 0 is the best."""
        torque = MOST_TORQUE * np.clip(action, -1, 1)
        away = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(away**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        speed = self.speed + (1.5 * GRAVITY * np.sin(self.angle) + 3 * torque) * INTERVAL
        self.speed = np.clip(speed, -MOST_SPEED, MOST_SPEED)
        self.angle = self.angle + self.speed * INTERVAL
        return reward


def record(count: int = 100, steps: int = 200, seed: int = 0) -> Mapping[str, npt.NDArray[np.float32]]:
    """Return the transitions of pendulums that are pushed at random, each way for five intervals in the mean."""
    random = np.random.default_rng(seed)
    pendulums, action = Pendulums.hang(count, random), random.uniform(-1, 1, count)
    rows: list[tuple[Numbers, ...]] = []
    for _ in range(steps):
        changes = random.random(count) < 0.2
        action = np.where(changes, random.uniform(-2, 2, count).clip(-1, 1), action)
        state = pendulums.observe()
        reward = REWARD_SCALE * pendulums.push(action)
        rows.append((state, action[:, np.newaxis], reward[:, np.newaxis], pendulums.observe()))
    columns = [np.concatenate(column).astype(np.float32) for column in zip(*rows, strict=True)]
    found = dict(zip(("state", "action", "reward", "next_state"), columns, strict=True))
    return {**found, "done": np.zeros_like(found["reward"])}


def play(policy: Policy, count: int = 100, steps: int = 200, seed: int = 1) -> Numbers:
    """Return the returns [n] of a policy: rewards added up over ten seconds, as the classic task counts them."""
    pendulums = Pendulums.hang(count, np.random.default_rng(seed))
    return sum((pendulums.push(policy(pendulums.observe())) for _ in range(steps)), start=np.zeros(count))


if __name__ == "__main__":
    path = Path(__file__).with_name("transitions.npz")
    np.savez(path, **record())
    print(f"wrote {path}")

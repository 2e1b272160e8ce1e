"""return of 100 pendulums in ten seconds, in the mean; 0 would be upright and still all the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pendulum
from trial import Figure, Trial

from runtime import reopen


def judge(trial: Trial) -> Iterator[Figure]:
    """Let the learnt policy, a random one and no motor at all swing the same pendulums."""
    transitions = trial.out.absolute() / "transitions.npz"
    np.savez(transitions, **pendulum.record())
    step = reopen(trial.run("-s", f"data.train.path={transitions}"))
    random = np.random.default_rng(trial.seed)
    learnt = pendulum.play(lambda state: step.numpy(step({"state": state}, mode="infer")["torque"])[:, 0]).mean()
    pushed = pendulum.play(lambda state: random.uniform(-1, 1, len(state))).mean()
    still = pendulum.play(lambda state: np.zeros(len(state))).mean()
    yield Figure(name="random torques", value=pushed, form=".0f")
    yield Figure(name="no torque", value=still, form=".0f")
    yield Figure(name="the learnt policy", value=learnt, bar=-250, form=".0f")

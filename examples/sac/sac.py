"""SAC, declared in Python: the spec of sac.yaml. `python sac.py > sac-from-python.yaml` writes it.

The policy, a block there, is a function here; its names begin with `next.` and `now.`.
"""

from __future__ import annotations

import math

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, clip, concat, exp, log, mean, minimum, mse, split, stop, tanh

WIDTH, LR, DISCOUNT, TAU, ENTROPY = 64, 3e-4, 0.98, 0.005, -1.0


def declare() -> GraphSpec:
    g = Graph("sac")
    state, action = g.input("state", ["batch", 3]), g.input("action", ["batch", 1])
    reward, next_state = g.input("reward", ["batch", 1]), g.input("next_state", ["batch", 3])
    done = g.input("done", ["batch", 1])
    hidden = [{"linear": WIDTH}, "relu", {"linear": WIDTH}, "relu"]
    actor = g.model("actor", layers=[*hidden, {"linear": 2}], optimizer=adam(LR))
    critic_1 = g.model("critic_1", layers=[*hidden, {"linear": 1}])
    critic_2 = g.model("critic_2", like=critic_1, init="fresh")
    late_critic_1 = g.model("late_critic_1", like=critic_1)
    late_critic_2 = g.model("late_critic_2", like=critic_2)
    log_temperature = g.model("log_temperature", parameter={"shape": [], "init": 0.0}, optimizer=adam(LR))

    def policy(state):
        """Return the middle of the actions for a state, one that is drawn, and the log of its density."""
        told = actor(state)
        middle, raw = split(told, sections=2, name="halves")
        log_spread = clip(raw, min=-20.0, max=2.0)
        noise = g.normal(like=action)
        drawn = g.expr(tanh(middle + exp(log_spread) * noise), name="action")
        log_p = -0.5 * noise**2 - log_spread - log(1 + 1e-6 - drawn**2) - math.log(2 * math.pi) / 2
        return middle, drawn, log_p

    log_alpha = log_temperature(after=[])
    alpha = exp(log_alpha)

    # What a state and an action are worth: the reward, what the more doubtful critic expects, and the entropy's share.
    with g.scope("next"):
        _, next_action, next_log_p = policy(next_state)
    next_pair = concat(next_state, next_action)
    next_1, next_2 = late_critic_1(next_pair), late_critic_2(next_pair)
    goal = reward + DISCOUNT * (1 - done) * stop(minimum(next_1, next_2) - alpha * next_log_p)
    pair = concat(state, action)
    q_1, q_2 = critic_1(pair), critic_2(pair)
    step_critics = g.update([critic_1, critic_2], loss=mse(q_1, goal) + mse(q_2, goal), optimizer=adam(LR))

    # An action for this state; here gradients flow through the draw.
    with g.scope("now"):
        middle, now_action, log_p = policy(state)
    chosen = concat(state, now_action)
    judged_1, judged_2 = critic_1(chosen, after=step_critics), critic_2(chosen, after=step_critics)
    step_actor = g.update(actor, loss=mean(stop(alpha) * log_p - minimum(judged_1, judged_2)))

    # The temperature falls while the entropy, -log p in the mean, is more than is wanted.
    step_alpha = g.update(log_temperature, loss=-mean(alpha * stop(log_p + ENTROPY)))

    g.ema(critic_1, into=late_critic_1, tau=TAU, name="follow_1")
    g.ema(critic_2, into=late_critic_2, tau=TAU, name="follow_2")
    torque = tanh(middle, mode="infer")
    return g.build(
        outputs=[step_critics.loss, step_actor.loss, step_alpha.loss, alpha, torque],
        data={"train": {"source": "npz", "path": "../td3/transitions.npz", "batch": 128, "shuffle": True}},
        run={"steps": 6000, "log_every": 500},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

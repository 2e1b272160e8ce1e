"""TD3, declared in Python: the spec of td3.yaml. `python td3.py > td3-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, clip, concat, mean, minimum, mse

WIDTH, LR, DISCOUNT, TAU = 64, 1e-3, 0.98, 0.005


def declare() -> GraphSpec:
    g = Graph("td3")
    state, action = g.input("state", ["batch", 3]), g.input("action", ["batch", 1])
    reward, next_state = g.input("reward", ["batch", 1]), g.input("next_state", ["batch", 3])
    done = g.input("done", ["batch", 1])
    hidden = [{"linear": WIDTH}, "relu", {"linear": WIDTH}, "relu"]
    actor = g.model("actor", layers=[*hidden, {"linear": 1}, "tanh"], optimizer=adam(LR))
    critic_1 = g.model("critic_1", layers=[*hidden, {"linear": 1}])
    critic_2 = g.model("critic_2", like=critic_1, init="fresh")
    late_actor = g.model("late_actor", like=actor)
    late_critic_1 = g.model("late_critic_1", like=critic_1)
    late_critic_2 = g.model("late_critic_2", like=critic_2)

    # What a state and an action are worth: the reward, and what the more doubtful critic expects of the next ones.
    proposed = late_actor(next_state)
    noise = g.normal(like=action, std=0.2)
    next_action = clip(proposed + clip(noise, min=-0.5, max=0.5), min=-1.0, max=1.0)
    next_pair = concat(next_state, next_action)
    next_1, next_2 = late_critic_1(next_pair), late_critic_2(next_pair)
    goal = reward + DISCOUNT * (1 - done) * minimum(next_1, next_2)

    pair = concat(state, action)
    q_1, q_2 = critic_1(pair), critic_2(pair)
    step_critics = g.update([critic_1, critic_2], loss=mse(q_1, goal) + mse(q_2, goal), optimizer=adam(LR))

    chosen = actor(state)
    chosen_pair = concat(state, chosen)
    judged = critic_1(chosen_pair, after=step_critics)
    step_actor = g.update(actor, loss=-mean(judged), every=2)

    g.ema(actor, into=late_actor, tau=TAU, every=step_actor, name="follow_actor")
    g.ema(critic_1, into=late_critic_1, tau=TAU, every=step_actor, name="follow_1")
    g.ema(critic_2, into=late_critic_2, tau=TAU, every=step_actor, name="follow_2")
    torque = actor(state, mode="infer")
    return g.build(
        outputs=[step_critics.loss, torque],
        data={"train": {"source": "npz", "path": "transitions.npz", "batch": 128, "shuffle": True}},
        run={"steps": 6000, "log_every": 500},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

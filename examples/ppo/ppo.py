"""PPO, declared in Python: the spec of ppo.yaml. `python ppo.py > ppo-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import (
    abs,
    adam,
    clip,
    exp,
    gather,
    logsumexp,
    mean,
    metrics,
    minimum,
    mse,
    schedule,
    sqrt,
    square,
    stop,
    sum,
)

# Those of RL Baselines3 Zoo for CartPole-v1, but for a constant clip and the entropy bonus of the paper.
POLES, MOVES, STEPS, EPOCHS = 8, 32, 400, 20
CLIP, ENTROPY = 0.2, 0.01
DISCOUNT, DECAY = 0.98, 0.8


def declare(seed: int = 0) -> GraphSpec:
    g = Graph("ppo", seed=seed)
    state, action = g.input("state", ["batch", 4]), g.input("action", ["batch", 1], "int64")
    advantage = g.input("advantage", ["batch", 1])  # GAE, of the critic's values before the first pass
    goal = g.input("goal", ["batch", 1])  # what the critic is to say: advantage plus value
    score = g.input("score", [])  # how long the last games were, for the log
    hidden = [{"linear": 64}, "tanh", {"linear": 64}, "tanh"]
    optimizer = adam(schedule("linear", from_=1e-3, to=0, over="1 run"), eps=1e-5)
    actor = g.model("actor", layers=[*hidden, {"linear": 2}], optimizer=optimizer)
    critic = g.model("critic", layers=[*hidden, {"linear": 1}], optimizer=optimizer)

    def policy():
        """Return the log of the probability of each action."""
        scores = actor(state)
        return g.expr(scores - logsumexp(scores, axis=1, keepdims=True), name="log_p")

    # The policy that played is that of the weights at the start of the step, so its chances are read and not stored.
    with g.scope("played"):
        log_p = policy()
    chances = exp(log_p, mode="infer")
    value = critic(state, mode="infer")

    before = stop(gather(log_p, action))
    centered = advantage - mean(advantage)
    better = centered / (sqrt(mean(square(centered))) + 1e-8)
    with g.repeat("passes", EPOCHS) as passes:  # each sees the weights that the one before it left
        with g.scope("now"):
            log_p = policy()
        ratio = exp(gather(log_p, action) - before)
        gain = mean(minimum(ratio * better, clip(ratio, min=1 - CLIP, max=1 + CLIP) * better))
        entropy = -mean(sum(exp(log_p) * log_p, axis=1))
        guess = critic(state)
        g.update(
            [actor, critic], loss=0.5 * mse(guess, goal) - gain - ENTROPY * entropy, clip={"norm": 0.5}, name="step"
        )

    entropy = g.expr(mean(passes.output(entropy)), mode="train")
    # How far the passes go from the policy that played.
    apart = g.expr(mean(abs(passes.output(ratio) - 1)), mode="train")
    game = metrics.mean(score, mode="train", reset="step")
    batch = POLES * MOVES
    played = {"seed": seed, "poles": POLES, "moves": MOVES, "discount": DISCOUNT, "decay": DECAY}
    return g.build(
        outputs=[game, entropy, apart, chances, value],
        data={"train": {"class": "poles:Rollouts", "args": played, "batch": batch}},
        run={"steps": STEPS, "log_every": 20},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

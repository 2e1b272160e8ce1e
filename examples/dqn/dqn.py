"""Double DQN, declared in Python: the spec of dqn.yaml. `python dqn.py > dqn-from-python.yaml` writes it."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, argmax, gather, huber, metrics, reshape, schedule

BATCH, WIDTH, STEPS, DISCOUNT = 128, 128, 16000, 0.99


def declare(seed: int = 0) -> GraphSpec:
    g = Graph("dqn", seed=seed)
    state, action = g.input("state", ["batch", 4]), g.input("action", ["batch", 1], "int64")
    reward, next_state = g.input("reward", ["batch", 1]), g.input("next_state", ["batch", 4])
    fell = g.input("fell", ["batch", 1])  # 1 where the game was lost; one that is cut off for its length was not
    score = g.input("score", [])  # how long the player's last games were, for the log
    layers = [{"linear": WIDTH}, "relu", {"linear": WIDTH}, "relu", {"linear": 2}]
    net = g.model("net", layers=layers, optimizer=adam(schedule("linear", from_=1e-3, to=0, over=STEPS)))
    target = g.model("target", like=net)

    values = net(state)
    value = gather(values, action)

    # Double: the net says which action comes next, the target what it is worth.
    next_values = net(next_state, stop=True)
    next_action = reshape(argmax(next_values), shape=[-1, 1])
    next_judged = target(next_state)
    goal = reward + DISCOUNT * (1 - fell) * gather(next_judged, next_action)

    loss = huber(value, goal, mode="train")
    g.update(net, loss=loss, clip={"norm": 10.0}, name="step")
    g.copy(net, into=target, every=100, name="sync")
    game = metrics.mean(score, mode="train", reset="step")
    best = argmax(values, mode="infer")  # how the player plays
    return g.build(
        outputs=[loss, game, best],
        data={"train": {"class": "cartpole:Player", "args": {"seed": seed, "batch": BATCH}, "batch": BATCH}},
        run={"steps": STEPS, "log_every": 500},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

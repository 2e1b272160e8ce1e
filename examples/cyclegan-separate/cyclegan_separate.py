"""CycleGAN with an update for each translator: the spec of cyclegan-separate.yaml, which running this file prints."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, l1, mse

ADAM = adam(5e-4, betas=[0.5, 0.999])


def declare() -> GraphSpec:
    g = Graph("cyclegan-separate")
    digit, negative = g.input("digit", ["batch", 1, 8, 8]), g.input("negative", ["batch", 1, 8, 8])

    def conv(out):
        return {"conv2d": {"out": out, "kernel": 3, "padding": 1}}

    layers = [conv(16), "relu", {"residual": [conv(16), "relu"]}, conv(1), "tanh"]
    to_negative = g.model("to_negative", layers=layers, optimizer=ADAM)
    to_digit = g.model("to_digit", like=to_negative, init="fresh", optimizer=ADAM)
    layers = [conv(16), {"leaky_relu": 0.2}, conv(1)]
    negative_critic = g.model("negative_critic", layers=layers, optimizer=ADAM)
    digit_critic = g.model("digit_critic", like=negative_critic, init="fresh", optimizer=ADAM)

    # There and back. Each translator's loss goes through the other one, so neither may move before both gradients are
    # taken: one update waits for the other gradient.
    fake_negative, fake_digit = to_negative(digit), to_digit(negative)
    digit_again, negative_again = to_digit(fake_negative, after=[]), to_negative(fake_digit, after=[])
    cycle_digit = l1(digit_again, digit, weight=10)
    cycle_negative = l1(negative_again, negative, weight=10)

    on_fake_negative = negative_critic(fake_negative, after=[])
    fool_negative = mse(on_fake_negative, 1.0)
    to_negative_loss = fool_negative + cycle_digit + cycle_negative
    g.update(to_negative, loss=to_negative_loss, name="step_to_negative")

    on_fake_digit = digit_critic(fake_digit, after=[])
    fool_digit = mse(on_fake_digit, 1.0)
    to_digit_loss = fool_digit + cycle_digit + cycle_negative
    g.update(to_digit, loss=to_digit_loss, name="step_to_digit")

    on_negative = negative_critic(negative)
    real_negative, false_negative = mse(on_negative, 1.0), mse(on_fake_negative, 0.0)
    negative_critic_loss = real_negative + false_negative
    g.update(negative_critic, loss=negative_critic_loss, name="step_negative_critic")

    on_digit = digit_critic(digit)
    real_digit, false_digit = mse(on_digit, 1.0), mse(on_fake_digit, 0.0)
    digit_critic_loss = real_digit + false_digit
    g.update(digit_critic, loss=digit_critic_loss, name="step_digit_critic")
    cycles, critics = [cycle_digit, cycle_negative], [negative_critic_loss, digit_critic_loss]
    return g.build(
        outputs=[to_negative_loss, to_digit_loss, *cycles, *critics, fake_negative],
        data={"train": {"source": "npz", "path": "../cyclegan/unpaired.npz", "batch": 32, "shuffle": True}},
        run={"steps": 1000, "log_every": 100, "images": {"value": fake_negative}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

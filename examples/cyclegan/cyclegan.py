"""CycleGAN, declared in Python: the spec of cyclegan.yaml. `python cyclegan.py` prints it as YAML."""

from __future__ import annotations

from graphspec import Graph, GraphSpec, dump
from graphspec.library import adam, l1, mse

ADAM = adam(5e-4, betas=[0.5, 0.999])


def declare() -> GraphSpec:
    g = Graph("cyclegan")
    digit, negative = g.input("digit", ["batch", 1, 8, 8]), g.input("negative", ["batch", 1, 8, 8])

    def conv(out):
        return {"conv2d": {"out": out, "kernel": 3, "padding": 1}}

    layers = [conv(16), "relu", {"residual": [conv(16), "relu"]}, conv(1), "tanh"]
    to_negative = g.model("to_negative", layers=layers)
    to_digit = g.model("to_digit", like=to_negative, init="fresh")
    layers = [conv(16), {"leaky_relu": 0.2}, conv(1)]
    negative_critic = g.model("negative_critic", layers=layers, optimizer=ADAM)
    digit_critic = g.model("digit_critic", like=negative_critic, init="fresh", optimizer=ADAM)

    # There and back.
    fake_negative, fake_digit = to_negative(digit), to_digit(negative)
    digit_again, negative_again = to_digit(fake_negative), to_negative(fake_digit)
    cycle_digit = l1(digit_again, digit, weight=10)
    cycle_negative = l1(negative_again, negative, weight=10)

    # The critics judge with the weights they had when the step began; ONE update moves both translators.
    on_fake_negative = negative_critic(fake_negative, after=[])
    on_fake_digit = digit_critic(fake_digit, after=[])
    fool_negative, fool_digit = mse(on_fake_negative, 1.0), mse(on_fake_digit, 1.0)
    translator_loss = fool_negative + fool_digit + cycle_digit + cycle_negative
    g.update([to_negative, to_digit], loss=translator_loss, optimizer=ADAM, name="step_translators")

    on_negative = negative_critic(negative)
    real_negative, false_negative = mse(on_negative, 1.0), mse(on_fake_negative, 0.0)
    negative_critic_loss = real_negative + false_negative
    g.update(negative_critic, loss=negative_critic_loss, name="step_negative_critic")

    on_digit = digit_critic(digit)
    real_digit, false_digit = mse(on_digit, 1.0), mse(on_fake_digit, 0.0)
    digit_critic_loss = real_digit + false_digit
    g.update(digit_critic, loss=digit_critic_loss, name="step_digit_critic")
    losses = [translator_loss, cycle_digit, cycle_negative, negative_critic_loss, digit_critic_loss]
    return g.build(
        outputs=[*losses, fake_negative],
        data={"train": {"source": "npz", "path": "unpaired.npz", "batch": 32, "shuffle": True}},
        run={"steps": 1000, "log_every": 100, "images": {"value": fake_negative}},
    )


if __name__ == "__main__":
    print(dump(declare()), end="")

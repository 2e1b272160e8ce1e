"""Schedules in a built step: what the optimizer has as its rate in each step, by every clock."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler as torch_schedulers

from compiler import Pace, compile_step
from graphspec import load
from runtime import Step, build
from tests.backends.torch.specs import USERS, batch_of

PACE = Pace(epoch=4, batch=6, run=40)
LINE = "{schedule: linear, from: 1.0, to: 0.0, over: 100, clock: CLOCK}"
SPEC = """graphspec: 1
name: scheduled
inputs: {x: {shape: [batch, 4]}, t: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: 3}], optimizer: {name: RULE, lr: SCHEDULE}}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, t]}
  step: {update: net, loss: loss, WHEN}
  hits: {metric: mean, inputs: loss}
"""


def built(schedule: str, when: str = "every: 1", rule: str = "sgd") -> Step:
    """Return the built step of a regression with a scheduled rate."""
    text = SPEC.replace("SCHEDULE", schedule).replace("WHEN", when).replace("RULE", rule)
    return build(compile_step(load(text), pace=PACE), device="cpu")


def rates(step: Step, steps: int) -> list[tuple[int, float]]:
    """Take steps; return those in which the update fired, from 1, with the rate it had."""
    found = []
    for number in range(1, steps + 1):
        step(batch_of())
        if "step" in step.report.fired:
            found.append((number, step.optimizers["net"].native.options["lr"]))
    return found


@pytest.mark.parametrize(
    ("clock", "counts"),
    [
        ("updates", {2: 0, 4: 1, 6: 2, 8: 3, 10: 4}),
        ("steps", {2: 1, 4: 3, 6: 5, 8: 7, 10: 9}),
        ("samples", {2: 6, 4: 18, 6: 30, 8: 42, 10: 54}),
        ("epochs", {2: 0, 4: 0, 6: 1, 8: 1, 10: 2}),
    ],
)
def test_each_clock_counts_its_own_while_the_update_fires_every_second_step(clock: str, counts: dict[int, int]) -> None:
    found = rates(built(LINE.replace("CLOCK", clock), "every: 2"), 10)
    assert found == [(step, pytest.approx(1 - n / 100)) for step, n in counts.items()]


@pytest.mark.parametrize("clock", ["updates", "steps", "samples", "epochs"])
@pytest.mark.parametrize("rule", ["sgd", "adam", "rmsprop"])
def test_the_first_use_reads_the_value_at_zero(clock: str, rule: str) -> None:
    assert rates(built(LINE.replace("CLOCK", clock), rule=rule), 1) == [(1, 1.0)]


def test_steps_in_eval_mode_move_no_clock() -> None:
    step = built(LINE.replace("CLOCK", "steps"))
    for mode in ("train", "eval", "eval", "train"):
        step(batch_of(), mode=mode)
    assert step.optimizers["net"].native.options["lr"] == pytest.approx(0.99)


def test_an_epochs_clock_changes_the_rate_at_the_ends_of_epochs_only() -> None:
    found = rates(built("{schedule: exponential, from: 1.0, rate: 0.5, clock: epochs}"), 12)
    assert [rate for _, rate in found] == [1.0] * 4 + [0.5] * 4 + [0.25] * 4


def test_a_warmup_joined_with_a_cosine_is_torchs_in_a_run_of_fifty_steps() -> None:
    parts = (
        "{schedule: warmup, from: 0.01, to: 0.1, over: 10}, {schedule: cosine, from: 0.1, to: 0.001, over: 10 epochs}"
    )
    found = rates(built(f"{{schedule: join, parts: [{parts}]}}"), 50)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    ramp = torch_schedulers.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    expected = []
    for _ in range(10):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        ramp.step()
    fall = torch_schedulers.CosineAnnealingLR(optimizer, T_max=40, eta_min=0.001)
    for _ in range(40):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        fall.step()
    assert [rate for _, rate in found] == pytest.approx(expected)


def test_lengths_in_epochs_go_by_the_updates_of_an_optimizer_that_is_applied_in_every_second_step() -> None:
    found = rates(built("{schedule: piecewise, at: {0: 1.0, 2 epochs: 0.1}}", "every: 2"), 12)
    assert found == [(2, 1.0), (4, 1.0), (6, 1.0), (8, 1.0), (10, 0.1), (12, 0.1)]


def test_the_weights_move_by_the_scheduled_rates() -> None:
    step = built("{schedule: step, from: 0.5, factor: 0.1, every: 2, clock: steps}")
    net = step.models["net"]
    hand = torch.nn.Linear(4, 3)
    hand.load_state_dict(dict(zip(("weight", "bias"), net.state_dict().values(), strict=True)))
    optimizer = torch.optim.SGD(hand.parameters(), lr=0.5)
    scheduler = torch_schedulers.StepLR(optimizer, 2, 0.1)
    batch = {name: torch.as_tensor(value) for name, value in batch_of().items()}
    for _ in range(5):
        step(batch)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(hand(batch["x"]), batch["t"]).backward()
        optimizer.step()
        scheduler.step()
    assert torch.allclose(next(iter(net.parameters())), hand.weight, rtol=0, atol=1e-7)


def test_a_restored_step_goes_on_at_its_place_in_the_schedule() -> None:
    first, second = (built(LINE.replace("CLOCK", "samples"), "every: 2") for _ in range(2))
    rates(first, 6)
    second.restore(first.state())
    assert rates(second, 4) == [(2, pytest.approx(1 - 42 / 100)), (4, pytest.approx(1 - 54 / 100))]


def test_a_plan_that_is_compiled_again_with_what_was_observed_keeps_its_pace() -> None:
    text = SPEC.replace("layers: [{linear: 3}]", f"class: '{USERS}:Plain'").replace("RULE", "sgd")
    spec = load(text.replace("SCHEDULE", LINE.replace("CLOCK", "epochs")).replace("WHEN", "start: 2 epochs"))
    step = build(compile_step(spec, pace=PACE), device="cpu", allow=[USERS])
    assert step.plan.pace == PACE
    assert rates(step, 6) == [(5, pytest.approx(0.99)), (6, pytest.approx(0.99))]


def test_the_emitted_source_says_what_is_scheduled_and_by_which_clock() -> None:
    assert (
        "lr=paced(clock, linear(start=1.0, to=0.0, over=100), every=4)" in built(LINE.replace("CLOCK", "epochs")).source
    )
    assert "lr=linear(start=1.0, to=0.0, over=100)" in built(LINE.replace("CLOCK", "updates")).source

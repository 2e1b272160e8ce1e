"""Captured steps with a loss scale, or other policies for gradients that are not finite, equal eager ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from compiler import compile_step
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime import Step, build
from runtime.backends.torch import capture
from tests.backends.torch.captured_steps import CLOSE, assert_alike, assert_same, draw, pair, spec_of

SCALED = {"loss_scale": {"initial": 7, "growth_steps": 2, "growth_factor": 3, "backoff_factor": 0.3}}
BAD = (0, 2, 3, 8)
"""The steps whose batches have a number that is not finite."""


def draw_overflows(step: Step, count: int):
    """Yield batches, some of which make gradients overflow."""
    for number, batch in enumerate(draw(step, count)):
        if number in BAD:
            batch["y"][1, 2] = (torch.inf, torch.nan)[number % 2]
        yield batch


def assert_same_verdicts(eager: Step, captured: Step, count: int = 12) -> list[bool]:
    """Take steps in both forms and compare them with what they say of each; return when the update took place."""
    taken: list[bool] = []
    for batch in draw_overflows(eager, count):
        for one, other in zip(eager(batch).values(), captured(batch).values(), strict=True):
            torch.testing.assert_close(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True)
        theirs, ours = (step._built.engine.overflow() for step in (eager, captured))
        assert ours == theirs  # of which parameter the gradient was not finite, and the scale, too
        taken.append(ours.committed.get("step", False))
    assert_alike(eager, captured)
    return taken


@pytest.mark.parametrize("rule", ["sgd", "adam", "lion", "lamb", "schedule_free_adamw"])
def test_updates_whose_gradients_are_not_finite_leave_no_trace_in_a_graph(compiler, rule):
    average = {"slow": {"ema": "net", "decay": {"kind": "tf", "max": 0.9}}}
    rule = {"name": rule, "lr": {"schedule": "step", "from": 0.05, "factor": 0.5, "every": 3}}
    rule |= {"momentum": 0.9} if rule["name"] == "sgd" else {}
    groups = [{"match": "0.*", "lr_scale": 0.5}] if rule["name"] == "adam" else None
    eager, captured = pair(spec_of(rule, SCALED, average, own={"groups": groups} if groups else None))
    assert assert_same_verdicts(eager, captured) == [number not in BAD for number in range(12)]
    assert compiler.graphs == 1
    for one, other in ((eager, captured), (captured, eager)):
        one.restore(other.state())
    assert_same_verdicts(eager, captured)
    assert compiler.graphs == 1


@pytest.mark.parametrize("policy", ["drop", "window"])
def test_windows_that_leave_out_gradients_or_are_spoiled_by_them(compiler, policy):
    eager, captured = pair(spec_of("adam", precision=SCALED, accumulate={"steps": 3, "on_nonfinite": policy}))
    taken = assert_same_verdicts(eager, captured)
    # the third of each window: in the first two of them two steps, then one, have such gradients, in the third one
    assert [taken[at] for at in (2, 5, 8, 11)] == [policy == "drop"] * 3 + [True]
    assert compiler.graphs == 2
    captured.restore(eager.state())
    assert_same_verdicts(eager, captured, 5)  # ends in the middle of a window


def twice():
    """Return a plan in which two updates apply one optimizer, and only the first may be skipped."""
    again = {"second": {"loss": "mse", "inputs": ["out", 0.5]}, "again": {"update": "net", "loss": "second"}}
    again["again"] |= {"after": "step", "on_overflow": "own"}
    return spec_of("adam", precision=SCALED, further=again, on_overflow="own")


def test_an_optimizer_that_is_applied_again_counts_only_what_took_place(compiler):
    """The second update reads Adam's corrections of bias from how often it was applied, which the device knows."""
    eager, captured = pair(twice())
    assert assert_same_verdicts(eager, captured) == [number not in BAD for number in range(12)]
    assert captured.optimizers["net"].iterations == 24 - len(BAD)
    assert compiler.graphs == 1


def test_verdicts_of_a_graph_that_does_not_compile_are_those_of_eager_steps(monkeypatch):
    def refuse(graph: Any, inputs: Any) -> Any:
        raise ValueError("no compiler here")

    monkeypatch.setattr(capture, "COMPILER", refuse)
    eager, captured = pair(twice())
    with pytest.warns(UserWarning, match="runs eagerly"):
        assert_same_verdicts(eager, captured)
    torch._dynamo.reset()


@pytest.mark.parametrize("policy", ["own", "group"])
def test_the_second_of_three_updates_of_one_optimizer_is_skipped(compiler, policy):
    further: dict[str, Any] = {}
    for number, target in enumerate((0.5, "y", 0.2)):
        further[f"loss{number}"] = {"loss": "mse", "inputs": ["out", target]}
        further[f"again{number}"] = {"update": "net", "loss": f"loss{number}", "on_overflow": policy}
        further[f"again{number}"] |= {"after": f"again{number - 1}" if number else "step"}
    rate = {"schedule": "step", "from": 0.05, "factor": 0.5, "every": 3}
    eager, captured = pair(spec_of({"name": "adam", "lr": rate}, precision=SCALED, further=further, on_overflow="own"))
    assert_same_verdicts(eager, captured)
    assert compiler.graphs == 1


class Wide(nn.Module):
    """A net that computes in float64, whatever its input is."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.double())


def test_a_large_scale_of_float16_values(compiler):
    """65536, to which the scale doubles from its default, is infinite in float16."""
    spec = {
        "graphspec": 1,
        "name": "halves",
        "precision": {"loss_scale": 65536},
        "inputs": {"x": {"shape": ["batch", 4], "dtype": "float16"}, "y": {"shape": ["batch", 3]}},
        "models": {"net": {"layers": [{"linear": 3}], "optimizer": "sgd"}},
        "ops": {
            "out": {"forward": "net", "inputs": "x"},
            "loss": {"loss": "mse", "inputs": ["out", "y"], "weight": 1e-3},
            "slope": {"gradient": "loss", "wrt": "x"},
            "step": {"update": "net", "loss": "loss"},
        },
        "outputs": ["slope"],
    }
    eager, captured = (
        build(
            compile_step(load(json.dumps(spec))),
            device="cpu",
            dtype="float64",
            jit=jit,
            models={"net": torch.manual_seed(0) and Wide()},
        )
        for jit in (None, "step")
    )
    batches = [*draw(eager, 2)]
    assert eager(batches[0])["slope"].count_nonzero() > 10
    captured(batches[0])
    assert_same(eager, captured, batches)
    assert compiler.graphs == 1


def test_a_window_that_is_paced_by_an_update_that_may_be_skipped_runs_eagerly(compiler):
    further = {
        "level": {"forward": "other", "inputs": "x"},
        "far": {"loss": "mse", "inputs": ["level", 0.5]},
        "paced": {"update": "other", "loss": "far", "accumulate": 2, "every": "step"},
    }
    other = {"other": {"layers": [{"linear": 3}], "optimizer": "adam"}}
    eager, captured = pair(spec_of("adam", precision=SCALED, further=further, models=other, on_overflow="own"))
    assert any("whether its window is taken or kept" in each for each in captured.notes)
    assert_same_verdicts(eager, captured)


def test_a_graph_that_ends_early_leaves_a_step_that_has_begun(compiler, monkeypatch):
    eager, captured = pair(spec_of("adam", precision=SCALED))
    batch = next(draw(eager, 1))
    captured(batch)

    def interrupt(tensor: torch.Tensor) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.Tensor, "tolist", interrupt)  # where the host waits for the verdicts
    with pytest.raises(KeyboardInterrupt):
        captured(batch)
    monkeypatch.undo()
    with pytest.raises(SpecError, match="GS290"):
        captured.state()


def test_an_error_after_the_graph_is_that_of_the_eager_step(compiler):
    steps = pair(spec_of("adam", on_overflow="error"))
    for step in steps:
        batch = next(draw(step, 1))
        step(batch)
        batch["y"][0, 0] = torch.nan
        with pytest.raises(SpecError, match="GS280"):
            step(batch)
        with pytest.raises(SpecError, match="GS290") as caught:
            step(batch)
        assert "had begun to write" in str(caught.value)

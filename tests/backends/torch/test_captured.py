"""Steps that are captured as graphs equal eager ones, and a graph is made once for each function and size of batch."""

from __future__ import annotations

import gc
import json
import shutil
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

from compiler import compile_step
from graphspec import load
from graphspec.diagnostics import SpecError
from runtime import build
from runtime.backends.torch import capture
from tests.backends.torch.captured_steps import (
    EXAMPLES,
    assert_same,
    draw,
    pair,
    plan_of,
    spec_of,
)


def test_one_graph_for_each_size_of_batch_whatever_happens_in_between(compiler):
    eager, captured = pair(plan_of("ema-classifier"))
    assert_same(eager, captured, draw(eager, 3))
    assert_same(eager, captured, draw(eager, 1), "eval")  # puts models into the other mode
    assert_same(eager, captured, draw(eager, 2))
    for step in (eager, captured):
        step.optimizers["classifier"].learning_rate = 0.01
    assert_same(eager, captured, draw(eager, 2))
    assert compiler.graphs == 1
    assert_same(eager, captured, draw(eager, 2, rows=3))
    assert compiler.graphs == 2


def test_a_window_over_steps(compiler):
    eager, captured = pair(spec_of("adam", accumulate=3))
    assert [
        each.removesuffix(" and to be recorded in its third") for each in captured.notes if "is one graph" in each
    ] == [f"train{each} is one graph, compiled in its first step" for each in ("", " (step)")]
    for rows in (4, 3):
        assert_same(eager, captured, draw(eager, 4, rows))
    assert compiler.graphs == 4  # for each size one that only adds to the window, and one that takes it
    assert_same(eager, captured, draw(eager, 4))
    assert compiler.graphs == 4


def test_one_graph_for_batches_of_all_sizes_but_one_row(compiler):
    told: list[str] = []
    eager, captured = pair(spec_of("adam", accumulate=3), "dynamic", report=told.append)
    for rows in (4, 3, 4, 7, 5, 2, 6):  # rows weight what is added to the window
        assert_same(eager, captured, draw(eager, 1, rows))
    assert compiler.graphs == 2  # one that only adds to the window, and one that takes it
    assert [each for each in told if each.startswith("compiling")] == [
        f"compiling train{each} for x [batch, 4], y [batch, 3]" for each in ("", " (step)")
    ]
    assert_same(eager, captured, draw(eager, 3, rows=1))
    assert compiler.graphs == 4
    batch = next(draw(eager, 1, rows=9))
    captured(batch)
    assert not any(hasattr(each, "_dynamo_dynamic_indices") for each in batch.values())  # the caller's are not marked


def test_a_step_that_is_dropped_is_freed_with_its_graphs(compiler):
    found = []
    for _ in range(2):
        _, captured = pair(spec_of("adam"))
        for batch in draw(captured, 4):
            captured(batch)
        (graph,) = captured._built.engine.graphs.values()
        found += [weakref.ref(captured.models["net"]), weakref.ref(graph.function)]
        del captured, graph, batch
        gc.collect()
    assert compiler.graphs == 2
    assert [each() for each in found] == [None] * 4


def test_more_sizes_than_graphs_are_made_for_run_eagerly(compiler):
    eager, captured = pair(spec_of("adam"))
    batches = [batch for rows in range(2, 12) for batch in draw(eager, 1, rows)]
    with pytest.warns(UserWarning, match="runs eagerly"):
        assert_same(eager, captured, batches)
    assert compiler.graphs == 8


def test_torch_compile_that_is_switched_off(compiler):
    eager, captured = pair(spec_of("adam"))
    assert_same(eager, captured, draw(eager, 2))
    with torch.compiler.set_stance("force_eager"):
        assert_same(eager, captured, draw(eager, 2))
        eager, late = pair(spec_of("adam"))
    assert any("torch.compile is switched off" in each for each in late.notes)
    assert_same(eager, late, draw(eager, 2))
    assert compiler.graphs == 1


def test_a_window_of_gradients_that_may_be_absent_is_built(compiler):
    eager, captured = pair(spec_of("adam", accumulate=2, missing="skip"))
    assert_same(eager, captured, draw(eager, 4))


def test_an_average_in_every_iteration_of_a_part(compiler):
    ops = {
        "out": {"forward": "net", "inputs": "x"},
        "loss": {"loss": "mse", "inputs": ["out", 0.5]},
        "step": {"update": "net", "loss": "loss"},
        "average": {"ema": "net", "into": "slow", "decay": {"kind": "tf", "max": 0.9}},
    }
    net = {"layers": [{"linear": 3}], "optimizer": "adam"}
    spec = {"graphspec": 1, "name": "thrice", "inputs": {"x": {"shape": ["batch", 4]}}}
    spec |= {"models": {"net": net, "slow": {"like": "net"}}}
    plan = compile_step(load(json.dumps({**spec, "ops": {"part": {"repeat": 3, "ops": ops}}})))
    eager, captured = pair(plan)
    assert_same(eager, captured, draw(eager, 4))
    assert compiler.graphs == 1


@pytest.mark.parametrize("example", ["gan-digits", "sac", "tied-lm"])
def test_random_numbers_and_several_updates_in_batches_of_all_sizes(compiler, example):
    eager, captured = pair(plan_of(example), "dynamic")
    for rows in (4, 6, 3):
        assert_same(eager, captured, draw(eager, 1, rows))
    assert compiler.graphs == 1


class Pairs(nn.Module):
    """A net that treats batches of four rows in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.flip(0)) if x.shape[0] == 4 else self.net(x)


def test_a_graph_that_needs_to_know_the_rows_is_made_for_each_size(compiler):
    plan, told = spec_of("adam"), list[str]()
    eager, captured = (
        build(plan, device="cpu", jit=jit, models={"net": torch.manual_seed(0) and Pairs()}, report=told.append)
        for jit in (None, "dynamic")
    )
    for rows in (4, 5, 4, 5, 6):
        batch = {"x": torch.rand(rows, 4), "y": torch.rand(rows, 3)}
        torch.testing.assert_close(eager(batch), captured(batch), rtol=1e-5, atol=1e-6)
    assert any("takes the number of rows for a constant" in each for each in (*captured.notes, *told))
    assert compiler.graphs == 4  # the first was for all sizes, and turned out to be for four rows alone


class Switched(nn.Module):
    """A net whose user may replace its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.activation = nn.Linear(4, 3), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.net(x))


def test_a_module_that_is_replaced_and_a_cache_that_is_emptied_make_a_new_graph(compiler):
    plan = spec_of("adam")
    eager, captured = (
        build(
            plan, device="cpu", jit=jit, dtype="float64", models={"net": torch.manual_seed(0) and Switched().double()}
        )
        for jit in (None, "step")
    )
    for graphs, activation in enumerate((nn.ReLU, nn.Tanh, nn.Tanh), 1):
        for step in (eager, captured):
            step.models["net"].activation = activation()
        assert_same(eager, captured, draw(eager, 3))
        assert compiler.graphs == graphs
        if graphs == 2:
            torch._dynamo.reset()


def test_states_cross_between_graphs_through_autograd_and_eager_steps(compiler):
    compiler.run = aot_eager
    eager, captured = pair(spec_of({"name": "adamw", "lr": 0.01, "fused": True}, accumulate=2))
    for batch in draw(eager, 3):
        eager(batch)
    captured.restore(eager.state())
    assert_same(eager, captured, draw(eager, 4))
    eager.restore(captured.state())
    assert_same(eager, captured, draw(eager, 4))
    assert compiler.graphs == 2


def test_a_call_whose_inner_results_no_op_reads_makes_no_further_graph(compiler):
    net = {"layers": [{"linear": 5}, "relu", {"linear": 3}], "optimizer": {"name": "sgd", "lr": 0.1}}
    spec = {
        "graphspec": 1,
        "name": "tapped",
        "inputs": {"x": {"shape": ["batch", 4]}, "z": {"shape": ["batch", 4]}},
        "outputs": ["inner", "other"],
        "models": {"net": net},
        "ops": {
            "out": {"forward": "net", "inputs": "x", "outputs": ["out", {"inner": {"tap": "0"}}]},
            "step": {"update": "net", "loss": "mean(square(out)) + mean(square(inner))"},
            "other": {"forward": "net", "inputs": "z"},
        },
    }
    eager, captured = pair(compile_step(load(json.dumps(spec))))
    assert_same(eager, captured, draw(eager, 3))
    assert compiler.graphs == 1


def test_what_is_written_into_single_numbers(compiler):
    compiler.run = aot_eager  # the pass that had Dynamo leave such writes out is one of autograd's compiler
    spec = {
        "graphspec": 1,
        "name": "numbers",
        "inputs": {"x": {"shape": ["batch", 4]}},
        "outputs": ["loss", "seen"],
        "models": {"scale": {"parameter": {"shape": [], "init": 0.5}, "optimizer": {"name": "adam", "lr": 0.1}}},
        "state": {"total": {"shape": [], "init": 0.0}},
        "ops": {
            "factor": {"forward": "scale", "after": []},
            "loss": {"expr": "mean(square(factor * x - 1))"},
            "step": {"update": "scale", "loss": "loss"},
            "sum": {"expr": "total + loss"},
            "push": {"assign": "total", "value": "sum"},
            "seen": {"expr": "total + 1", "after": ["push"]},
        },
    }
    eager, captured = pair(compile_step(load(json.dumps(spec))))
    assert_same(eager, captured, draw(eager, 3))
    assert compiler.graphs == 1


RULES = [
    "sgd",
    {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"name": "sgd", "lr": 0.01, "momentum": 0.9, "dampening": 0.5},
    {"name": "sgd", "lr": 0.01, "momentum": 0.9, "momentum_form": "lr_inside"},
    {"name": "adam", "lr": 0.01, "weight_decay": 0.1},
    {"name": "adamw", "lr": {"schedule": "linear", "from": 0.1, "to": 0.01, "over": 4}},
    {"name": "adagrad", "lr": 0.01, "lr_decay": 0.1},
    "lion",
    "lamb",
    "lars",
    "adafactor",
    "ftrl",
    "rprop",
    "schedule_free_sgd",
    "schedule_free_adamw",
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: json.dumps(rule)[:40])


@pytest.mark.sample(3)
@each_rule
def test_the_rules_of_optimizers(compiler, rule):
    eager, captured = pair(spec_of(rule if isinstance(rule, dict) else {"name": rule, "lr": 0.01}))
    assert_same(eager, captured, draw(eager, 4))
    assert compiler.graphs == 1


def test_groups_and_numbers_that_are_set_by_hand(compiler):
    curve = {"schedule": "cosine", "from": 0.1, "to": 0.01, "over": 6}
    groups = [{"match": "bias$", "weight_decay": 0.0}, {"match": "^0.weight", "lr_scale": 0.5}]
    eager, captured = pair(spec_of({"name": "adamw", "lr": curve, "weight_decay": 0.1}, own={"groups": groups}))
    assert_same(eager, captured, draw(eager, 3))
    for step in (eager, captured):
        step.optimizers["net"].options["eps"] = 0.1
    assert_same(eager, captured, draw(eager, 3))
    assert compiler.graphs == 2  # for a number that was no tensor before
    for step in (eager, captured):
        step.optimizers["net"].options["eps"] = 0.2
    assert_same(eager, captured, draw(eager, 3))
    assert compiler.graphs == 2


@pytest.mark.parametrize("rng", ["native", "portable"])
def test_masks_of_two_calls_that_a_graph_may_mix(compiler, rng):
    spec = {
        "graphspec": 1,
        "name": "masks",
        "rng": rng,
        "inputs": {"x": {"shape": ["batch", 4]}},
        "outputs": ["loss"],
        "models": {"net": {"layers": [{"linear": 6}, {"dropout": 0.5}, {"linear": 6}, {"dropout": 0.3}]}},
        "ops": {
            "noise": {"random": "normal", "like": "x", "args": {"std": 0.1}},
            "noisy": {"call": "add", "inputs": ["x", "noise"]},
            "one": {"forward": "net", "inputs": "x"},
            "two": {"forward": "net", "inputs": "noisy"},
            "loss": {"loss": "mse", "inputs": ["one", "two"]},
            "step": {"update": "net", "loss": "loss", "optimizer": {"name": "sgd", "lr": 0.1}},
        },
    }
    eager, captured = pair(compile_step(load(json.dumps(spec))))
    assert_same(eager, captured, draw(eager, 3))
    assert compiler.graphs == 1


class Chooser(nn.Module):
    """A net that looks at its numbers in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) if x.mean().item() > 10 else self.net(2 * x)


def test_what_cannot_be_captured_is_told_before_the_first_step_and_runs_eagerly(compiler):
    plan = spec_of("adam")
    eager, captured = (
        build(plan, device="cpu", jit=jit, models={"net": torch.manual_seed(0) and Chooser()}) for jit in (None, "step")
    )
    (note,) = (each for each in captured.notes if "eagerly" in each)
    assert note.startswith("train (step) runs eagerly: op 'out': ")
    batch = {"x": torch.ones(2, 4), "y": torch.zeros(2, 3)}
    torch.testing.assert_close(eager(batch), captured(batch), rtol=0, atol=0)
    assert compiler.graphs == 0


def test_an_error_that_a_function_of_the_step_raises_says_why(compiler):
    eager, captured = pair(spec_of({"name": "sgd", "lr": 0.1, "momentum": 0.9, "fused": False}))
    why = "the optimizer has no fused kernel, so its slots are made by the first gradient"
    assert f"train (step) runs eagerly: op 'step': {why}" in captured.notes
    assert_same(eager, captured, draw(eager, 2))


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ("sparse-embeddings", "its gradient is rows of a table"),
        ("gan-digits", "has torch.optim's interface"),
    ],
)
def test_what_no_graph_can_hold_is_known_from_the_plan(compiler, example, reason):
    overrides = ["models.discriminator.optimizer={name: rmsprop, lr: 0.001}"] if example == "gan-digits" else []
    plan = compile_step(load(next(EXAMPLES.glob(f"*/{example}.yaml")), overrides))
    eager, captured = pair(plan, allow=["pairs"])
    (note,) = (each for each in captured.notes if "eagerly" in each)
    assert reason in note
    for one, other in zip(*([step(batch) for batch in draw(step, 2)] for step in (eager, captured)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_graph_that_does_not_compile_is_said_and_the_step_is_taken_eagerly(monkeypatch):
    def refuse(graph: Any, inputs: Any) -> Any:
        raise ValueError("no compiler here")

    monkeypatch.setattr(capture, "COMPILER", refuse)
    told: list[str] = []
    plan = spec_of("adam")
    eager, captured = build(plan, device="cpu"), build(plan, device="cpu", jit="step", report=told.append)
    batches = [{"x": torch.rand(2, 4), "y": torch.rand(2, 3)} for _ in range(2)]
    with pytest.warns(UserWarning, match=r"train \(step\) runs eagerly: .*no compiler here"):
        first = captured(batches[0])
    torch.testing.assert_close(eager(batches[0]), first, rtol=0, atol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(eager(batches[1]), captured(batches[1]), rtol=0, atol=0)
    assert told == ["compiling train (step) for x [2, 4], y [2, 3]"]
    assert captured.state().counters == eager.state().counters
    torch._dynamo.reset()


def test_checks_of_numbers_have_no_place_in_a_graph():
    with pytest.raises(SpecError, match=r"GS277.*`debug`"):
        build(spec_of("adam"), device="cpu", jit="step", debug=True)


@pytest.mark.long  # as are all examples (`python -m tests.conformance.captured`)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Inductor's own
@pytest.mark.skipif(not shutil.which("g++"), reason="Inductor needs a C++ compiler")
def test_a_step_that_inductor_compiled(monkeypatch):
    import torch._inductor.config as settings

    monkeypatch.setattr(settings, "compile_threads", 1)  # processes of compilers, and trials of what the processor
    monkeypatch.setattr(settings.cpp, "vec_isa_ok", True)  # can do, take longer than this graph
    net = {"layers": [{"linear": 3}], "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}
    ops = {"out": {"forward": "net", "inputs": "x"}, "step": {"update": "net", "loss": "mean(square(out))"}}
    spec = {"graphspec": 1, "name": "least", "inputs": {"x": {"shape": ["batch", 4]}}, "outputs": ["out"]}
    told: list[str] = []
    plan = compile_step(load(json.dumps({**spec, "models": {"net": net}, "ops": ops})))
    eager, captured = pair(plan, report=told.append)
    assert_same(eager, captured, draw(eager, 3))
    assert [each.split(" in ")[0] for each in told] == ["compiling train (step) for x [4, 4]", "compiled train (step)"]
    torch._dynamo.reset()

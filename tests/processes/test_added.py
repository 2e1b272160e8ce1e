"""`reduce: sum`: processes add up the gradients of their own rows, beside a loop by hand over the processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from tests.processes.cases import (
    ADDED_BY_UPDATES,
    ADDED_UP,
    ADDING,
    REPLICATED,
    SHARDED,
    STEPS,
    Run,
    draw,
    found,
    make_step,
    write_text,
)

pytestmark = pytest.mark.xdist_group("replicas")  # one worker starts the processes


def train_by_hand(name: str) -> dict[str, np.ndarray]:
    """Return what a loop by hand finds that adds up the gradients of two processes, each of its own loss."""
    case = ADDING[name]
    step = make_step(case)
    start = {each: torch.tensor(value) for each, value in step.state().arrays.items() if each.startswith("models.")}
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    net.load_state_dict({each.removeprefix("models.net."): value for each, value in start.items()})
    adam = torch.optim.Adam(net.parameters(), lr=0.05)
    known: dict[str, np.ndarray] = {}
    for number in range(STEPS):
        batch = {each: torch.tensor(value) for each, value in draw(case, step, ADDED_UP.rows, number).items()}
        slopes: list[torch.Tensor] = []
        for x, y in zip(*(batch[each].tensor_split(ADDED_UP.world) for each in ("x", "y")), strict=True):
            out = net(x)
            fit = ((out - y) ** 2).mean()
            slopes.append(torch.autograd.grad(fit, out, retain_graph=True)[0])
            (fit + 0.05 * out.abs().sum()).backward()
        with torch.no_grad():
            out = net(batch["x"])
            known[f"fit {number}"] = ((out - batch["y"]) ** 2).mean().numpy()
            known[f"loss {number}"] = known[f"fit {number}"] + 0.05 * out.abs().sum().numpy()
            known[f"slope {number}"] = torch.cat(slopes).numpy()
        if "windows" not in name or number % 2:
            slope = torch.cat([each.grad.reshape(-1) for each in net.parameters() if each.grad is not None])
            for each in net.parameters():
                each.grad = None if each.grad is None else each.grad * min(1, 0.5 / slope.norm().item())
            adam.step()
            adam.zero_grad()
    weights = {f"models.net.{each}": value.detach().numpy() for each, value in net.named_parameters()}
    return {**known, **weights}


@pytest.mark.parametrize("name", [name for name in ADDING if name not in ADDED_BY_UPDATES])
def test_the_gradient_is_the_sum_of_what_processes_have_on_their_rows(folder: Path, name: str) -> None:
    known = train_by_hand(name)
    for part in found(folder, name, ADDED_UP):
        assert len(known.keys() & part.keys()) >= 2 * STEPS + 4
        for key in known.keys() & part.keys():
            np.testing.assert_allclose(part[key], known[key], rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize(
    ("run", "name"),
    [*((run, name) for run in (REPLICATED, ADDED_UP) for name in ADDED_BY_UPDATES), (SHARDED, "added by updates")],
)
def test_an_update_says_how_its_gradient_combines(folder: Path, run: Run, name: str) -> None:
    step = make_step(replace(ADDING[name], head=""))
    start = {each: torch.tensor(value) for each, value in step.state().arrays.items() if each.startswith("models.")}
    nets = {each: torch.nn.Linear(4, 2).double() for each in ("one", "two", "three")}
    for each, net in nets.items():
        net.load_state_dict({key: start[f"models.{each}.0.{key}"] for key in ("weight", "bias")})
    for number in range(STEPS):
        x, y = (torch.tensor(draw(ADDING[name], step, run.rows, number)[each]) for each in ("x", "y"))
        errors = ((nets["one"](x) * nets["two"](x) + nets["three"](x) - y) ** 2).mean(1)
        parts = sum(each.mean() for each in errors.tensor_split(run.world))
        losses = {"one": parts, "two": 0.5 * parts, "three": errors.mean()}
        slopes = {
            each: torch.autograd.grad(losses[each], [*net.parameters()], retain_graph=True)
            for each, net in nets.items()
        }
        for each, net in nets.items():
            for weight, slope in zip(net.parameters(), slopes[each], strict=True):
                weight.data -= 0.1 * slope
        for part in found(folder, name, run):
            np.testing.assert_allclose(part[f"loss {number}"], errors.mean().detach(), rtol=0, atol=1e-10)
    for part in found(folder, name, run):
        for each, net in nets.items():
            weight = net.weight.detach().numpy()
            np.testing.assert_allclose(part[f"models.{each}.0.weight"], weight, rtol=0, atol=1e-10)


REFUSED = """
graphspec: 1
name: refused
parallel: {kind: replicated, reduce: sum}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models:
  net: {layers: [{linear: 3}], optimizer: sgd}
  bend: {parameter: {shape: [2], init: ones}, optimizer: sgd}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: cross_entropy, inputs: [out, y]}
  step: {update: net, loss: fit}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("inputs: [out, y]}", "inputs: [out, y], args: {ignore_index: 0}}", "'fit' is divided by a count of its own"),
        (
            "  step:",
            "  bent: {forward: bend}\n  far: {loss: mse, inputs: [bent, 0.0]}\n"
            "  bow: {update: bend, loss: far}\n  step:",
            "'far' depends on no rows",
        ),
    ],
)
def test_what_is_no_sum_over_processes_is_refused(old: str, new: str, message: str) -> None:
    compile_step(load(REFUSED))
    with pytest.raises(SpecError, match=f"E-REPLICAS.*{message}"):
        compile_step(load(REFUSED.replace(old, new)))
    # the update says itself that it takes the mean
    same = REFUSED.replace(old, new).replace("loss: f", "reduce: mean, loss: f")
    compile_step(load(same))


def test_updates_that_want_one_gradient_in_two_ways_are_refused() -> None:
    text = write_text(ADDING["added by updates"], REPLICATED.kind)
    text = text.replace("{update: three, loss: loss", "{update: two, gradients: slope, after: step_two")
    with pytest.raises(
        SpecError, match=r"E-REPLICAS.*'step_two' takes 'slope' with `reduce: sum`, and 'step_three' with"
    ):
        compile_step(load(text))
    compile_step(load(text.replace("reduce: mean", "reduce: sum")))


def test_one_process_has_nothing_to_combine() -> None:
    text = write_text(ADDING["added by updates"])
    compile_step(load(text))  # `kind: none`: what several processes would do
    alone = "\n".join(line for line in text.splitlines() if not line.startswith("parallel:"))
    with pytest.raises(SpecError, match=r"GS056.*`reduce` of update 'step_one' goes with `parallel`"):
        load(alone)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_plan_says_what_is_added_up(backend: str) -> None:
    plan = compile_step(load(write_text(ADDING["added by updates"], REPLICATED.kind)), backend)
    added = [name for name in plan.spec.ops if "    ADD:" in plan.explain(name)]
    assert added == ["slope", "step_one"]
    text = "is that of each process on its own rows, and these are added up: `reduce: sum`"
    assert text in plan.text()

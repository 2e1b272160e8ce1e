"""`compress`: gradients that processes shorten, beside the published rules written out by hand for one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from compiler import compile_step
from graphspec import SpecError, load
from runtime import Step
from runtime.state import State
from tests.processes.cases import (
    COMPRESSED,
    FIT,
    PLAIN,
    REPLICATED,
    SENT,
    SHARDED,
    STEPS,
    Run,
    by_run,
    draw,
    found,
    make_step,
    write_text,
)

pytestmark = pytest.mark.xdist_group("replicas")  # one worker starts the processes

Array = np.ndarray
Rule = Callable[[Sequence[Array], str], Array]
"""What two processes receive of the gradients of a parameter, which each of them has."""
WORLD = 2


def kinds(*names: str) -> list[Run]:
    """Return the runs with some kinds of compression, of all without a name."""
    return [run for run in COMPRESSED if not names or any(name in run.options for name in names)]


def round_to(dtype: torch.dtype) -> Rule:
    """Round what is sent, and the sum."""

    def send(gradients: Sequence[Array], _: str) -> Array:
        first, second = (torch.tensor(each).to(dtype) for each in gradients)
        return (first + second).double().numpy()

    return send


def quantize(threshold: float, *, bits: int) -> Rule:
    """Send multiples of a threshold, or signs, as MXNet's servers receive them, number by number."""
    rests: dict[tuple[str, int], Array] = {}

    def send(gradients: Sequence[Array], name: str) -> Array:
        total = np.zeros_like(gradients[0])
        for rank, gradient in enumerate(gradients):
            rest = rests.setdefault((name, rank), np.zeros_like(gradient))
            for at, each in np.ndenumerate(gradient):
                rest[at] += each
                if bits == 2:
                    sent = threshold if rest[at] >= threshold else -threshold if rest[at] <= -threshold else 0.0
                else:
                    sent = 1.0 if rest[at] > threshold else -1.0
                rest[at] -= sent
                total[at] += sent
        return total

    return send


def factor(factors: Mapping[str, Array]) -> Rule:
    """Send two vectors for each matrix: Algorithms 1 and 2 of Vogels et al. 2019, which begin with given factors."""
    known = dict(factors)
    rests: dict[tuple[str, int], Array] = {}

    def send(gradients: Sequence[Array], name: str) -> Array:
        if name not in known:
            return sum(gradients, np.zeros_like(gradients[0]))
        given = [each + rests.get((name, rank), 0) for rank, each in enumerate(gradients)]
        left = sum(each @ known[name] for each in given)
        left = left / np.linalg.norm(left)
        known[name] = sum(each.T @ left for each in given)
        for rank, each in enumerate(given):
            rests[name, rank] = each - left @ (each.T @ left).T
        return left @ known[name].T

    return send


def find_rule(run: Run, step: Step) -> Rule:
    """Return the rule of a run by hand."""
    if "powersgd" in run.options:
        begin = "rests.step.factors."
        arrays = step.state().arrays
        return factor({name.removeprefix(begin): value for name, value in arrays.items() if name.startswith(begin)})
    return {
        "compress: fp16": round_to(torch.float16),
        "compress: bf16": round_to(torch.bfloat16),
        "compress: {kind: threshold, threshold: 0.02}": quantize(0.02, bits=2),
        "compress: {kind: sign, threshold: 0.01}": quantize(0.01, bits=1),
    }[run.options]


def train_by_hand(run: Run) -> dict[str, Array]:
    """Return the weights that two processes end with, in one."""
    case = SENT["sent"]
    step = run.make_step(case)
    send = find_rule(run, step)
    start = {each: torch.tensor(value) for each, value in step.state().arrays.items() if each.startswith("models.")}
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    net.load_state_dict({each.removeprefix("models.net."): value for each, value in start.items()})
    adam = torch.optim.Adam(net.parameters(), lr=0.05)
    for number in range(STEPS):
        batch = {each: torch.tensor(value) for each, value in draw(case, step, run.rows, number).items()}
        sent: list[dict[str, Array]] = []
        for x, y in zip(*(batch[each].tensor_split(WORLD) for each in ("x", "y")), strict=True):
            net.zero_grad()
            (((net(x) - y) ** 2).mean() * len(x) / run.rows).backward()
            sent.append(
                {name: each.grad.numpy().copy() for name, each in net.named_parameters() if each.grad is not None}
            )
        for name, each in net.named_parameters():
            each.grad = torch.tensor(send([own[name] for own in sent], name))
        adam.step()
    return {f"models.net.{each}": value.detach().numpy() for each, value in net.named_parameters()}


@by_run(kinds())
def test_processes_receive_what_the_rule_sends(folder: Path, run: Run) -> None:
    known = train_by_hand(run)
    for part in found(folder, "sent", run):
        assert len(known) == 4
        for key, value in known.items():
            np.testing.assert_allclose(part[key], value, rtol=0, atol=1e-10, err_msg=key)


@by_run(kinds())
def test_what_is_not_sent_is_saved_and_goes_on(folder: Path, run: Run) -> None:
    resumed = found(folder, "sent, resumed", run)
    assert all(("rests.step.rests.0.weight" in each) == ("16" not in run.options) for each in resumed)
    check_resumed(folder, "sent", run)


@by_run([REPLICATED, SHARDED, *COMPRESSED])
def test_what_each_process_has_in_a_window_is_saved_and_goes_on(folder: Path, run: Run) -> None:
    check_resumed(folder, "sent after windows", run)


@pytest.mark.parametrize("rows", [5, 4])
def test_one_process_takes_the_sum_of_a_window_whose_parts_fit(rows: int) -> None:
    case = SENT["sent after windows"]
    step, again = make_step(case), make_step(case)
    step(draw(case, step, 5, 0))
    state = step.state()
    names = [name for name in state.arrays if name.startswith("windows.step.totals.")]
    parts = {name.replace("totals", "parts"): np.stack([0.25 * state.arrays[name]] * 4) for name in names}
    parts["windows.step.parts.0.weight"] = parts["windows.step.parts.0.weight"][:, :rows]  # of five
    told = {name.removeprefix("windows.step.parts."): {"array": name} for name in parts}
    windows = {"step": {**state.counters["windows"]["step"], "parts": told}}
    held = State(arrays={**state.arrays, **parts}, counters={**state.counters, "windows": windows})
    if rows == 5:
        again.restore(held)
        found = again.state().arrays
        assert all(np.array_equal(found[name], state.arrays[name]) for name in names)
        return
    with pytest.raises(SpecError, match=r"error\[GS264\].*: windows\.step\.parts\.0\.weight is \(4, 4, 4\)"):
        again.restore(held)


def check_resumed(folder: Path, name: str, run: Run) -> None:
    """Assert that a case which was resumed has the state of one that was not, bit for bit."""
    for whole, resumed in zip(
        found(folder, f"{name}, whole", run), found(folder, f"{name}, resumed", run), strict=True
    ):
        assert resumed.keys() == whole.keys()
        assert all(np.array_equal(whole[key], each) for key, each in resumed.items())


@by_run(kinds("threshold", "powersgd"))
def test_other_processes_share_what_was_not_sent(folder: Path, run: Run) -> None:
    (part, _), step = found(folder, "sent", run), run.make_step(SENT["sent"])
    fresh = step.state()
    step.restore(State(arrays={name: part[name] for name in part if name in fresh.arrays}, counters=fresh.counters))
    name = "rests.step.rests.0.weight"
    assert part[name].shape == (WORLD, 5, 4)
    assert np.abs(part[name]).max() > 1e-4
    np.testing.assert_allclose(step.state().arrays[name], part[name].sum(0, keepdims=True), rtol=0, atol=1e-15)


@by_run(kinds())
def test_what_is_not_finite_on_one_is_seen_by_all(folder: Path, run: Run) -> None:
    for part in found(folder, "sent, broken", run):
        assert not np.isfinite(part["models.net.0.weight"]).any()


@by_run(kinds())
def test_one_process_alone_is_told_that_it_compresses_nothing(run: Run) -> None:
    step = run.make_step(SENT["sent"])
    with pytest.raises(SpecError, match="one process sends no gradients that `compress` could shorten"):
        step(draw(SENT["sent"], step, run.rows, 0))


@by_run(kinds())
def test_the_plan_says_how_much_is_left_to_send(folder: Path, run: Run) -> None:
    (function,) = run.make_step(SENT["sent"]).plan.to_json(processes=WORLD)["functions"]
    (message,) = [each for each in function["messages"] if "step" in each["values"]]
    # 20 + 5 + 10 + 2 numbers, with the loss where both are added up; vectors of 9 and 7 numbers for matrices
    known = {"16": 2 * 37, "kind: threshold": 10 + 1, "sign": 5 + 1, "powersgd": 4 * (9 + 5 + 7 + 2)}
    (size,) = [size for kind, size in known.items() if kind in run.options]
    assert message["bytes"] == size + 4 * ("loss" in message["values"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("compress: {kind: fp16, rank: 2}", "GS056"),
        ("compress: {kind: sign, rank: 2}", "GS056"),
        ("compress: {kind: powersgd, threshold: 1.0}", "GS056"),
        ("compress: {kind: threshold, threshold: 0.0}", "GS044"),
        ("compress: powersgd, bucket_mb: 1", "GS056"),
        ("compress: half", "GS043"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: str, code: str) -> None:
    load(write_text(SENT["sent"], "replicated", "compress: bf16, bucket_mb: 1"))
    with pytest.raises(SpecError, match=code):
        load(write_text(SENT["sent"], "replicated", options))


@pytest.mark.parametrize("kind", ["none", "sharded"])
def test_nothing_is_compressed_where_no_gradients_are_sent(kind: str) -> None:
    with pytest.raises(SpecError, match=r"GS056.*`compress` goes with `kind: replicated`"):
        load(write_text(SENT["sent"], kind, "compress: fp16"))


def test_what_is_kept_of_a_skipped_step_is_refused() -> None:
    head = "graphspec: 1\nname: skipped\nprecision: {loss_scale: dynamic}\n"
    compile_step(load(f"{head}parallel: {{kind: replicated, compress: bf16}}\n{FIT}{PLAIN}"))
    with pytest.raises(SpecError, match=r"E-REPLICAS.*'step' may be skipped"):
        compile_step(load(f"{head}parallel: {{kind: replicated, compress: sign}}\n{FIT}{PLAIN}"))

"""`all_gather` and `all_mean`: beside loops by hand on all rows, and what processes cannot share with gathered rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from compiler import compile_step
from compiler.ir.instructions import Start
from graphspec import SpecError, load
from runtime import build
from tests.processes.cases import CASES, REPLICATED, SHARDED, STEPS, Run, draw, found, make_step, train, write_text
from tests.processes.gathered import MIXED, SIMCLR

pytestmark = pytest.mark.xdist_group("replicas")  # one worker starts the processes


def start_by_hand(name: str, **models: torch.nn.Module) -> torch.optim.Optimizer:
    """Give models written by hand the numbers that a case starts with, and return their optimizer."""
    state = make_step(CASES[name]).state().arrays
    for model, net in models.items():
        begin = f"models.{model}."
        net.load_state_dict({each[len(begin) :]: torch.tensor(state[each]) for each in state if each.startswith(begin)})
    return torch.optim.SGD([each for net in models.values() for each in net.parameters()], lr=0.3)


def draw_all(name: str, number: int) -> dict[str, torch.Tensor]:
    """Return the rows of all processes in a step."""
    case = CASES[name]
    rows = case.last if number == STEPS - 1 else REPLICATED.rows
    return {key: torch.tensor(each) for key, each in draw(case, make_step(case), rows, number).items()}


def compare(folder: Path, name: str, known: dict[str, np.ndarray]) -> None:
    """Compare what a loop found with what every process found."""
    for part in found(folder, name):
        for key, value in known.items():
            np.testing.assert_allclose(part[key], value, rtol=0, atol=1e-10, err_msg=key)


def test_a_contrastive_loss_is_that_of_a_loop_over_all_rows(folder: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    head, known = torch.nn.Sequential(torch.nn.Linear(3, 3)).double(), dict[str, np.ndarray]()
    sgd = start_by_hand("contrastive", net=net, head=head)
    for number in range(STEPS):
        batch = draw_all("contrastive", number)
        views = [functional.normalize(head(net(batch[view])), dim=1) for view in ("a", "b")]
        z, count = torch.cat(views), len(batch["a"])
        losses = list[torch.Tensor]()  # of every pair, as Chen et al. (2020) write it
        for i in range(2 * count):
            others = torch.stack([z[i] @ z[k] for k in range(2 * count) if k != i]) / 0.5
            losses.append(others.exp().sum().log() - z[i] @ z[(i + count) % (2 * count)] / 0.5)
        loss = torch.stack(losses).mean()
        known[f"loss {number}"] = loss.detach().numpy()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    known |= {f"models.net.{key}": value.detach().numpy() for key, value in net.named_parameters()}
    compare(folder, "contrastive", known)


def test_a_learned_temperature_is_that_of_a_loop_over_all_rows(folder: Path) -> None:
    seeing = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    reading = torch.nn.Sequential(torch.nn.Linear(3, 3)).double()
    heat, known = torch.ones((), dtype=torch.float64, requires_grad=True), dict[str, np.ndarray]()
    sgd = start_by_hand("temperature", seeing=seeing, reading=reading)
    sgd.add_param_group({"params": [heat]})
    for number in range(STEPS):
        batch = draw_all("temperature", number)
        u = functional.normalize(seeing(batch["image"]), dim=1)
        scores = heat.exp() * (u @ functional.normalize(reading(batch["text"]), dim=1).T)
        places = torch.arange(len(u))
        loss = functional.cross_entropy(scores, places) + functional.cross_entropy(scores.T, places)
        known[f"loss {number}"] = loss.detach().numpy()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    (name,) = (key for key in found(folder, "temperature")[0] if key.startswith("models.heat."))
    compare(folder, "temperature", {**known, name: heat.detach().numpy()})


def test_what_is_gathered_is_sent_once_and_its_gradient_not_at_all(folder: Path) -> None:
    with np.load(REPLICATED.path(folder, "contrastive.sent", 0)) as sent:
        # the number of rows, and three rows of two projections to three numbers; in eval mode `z_a` is returned, too
        assert set(sent["sent by all_gather"][: 2 * STEPS : 2].tolist()) == {8}
        assert {*sent["sent by all_gather"].tolist()} <= {8, 72, 108}
        # the sets of net and head; the loss is the same on all
        assert sent["sent by all_reduce"].tolist() == [4 * (4 * 5 + 5 + 5 * 3 + 3 + 3 * 3 + 3)] * STEPS


def test_what_reads_gathered_rows_alone_couples_nothing() -> None:
    for name in ("contrastive", "temperature", "gathered and own"):
        assert not compile_step(load(write_text(CASES[name], REPLICATED.kind))).warnings


@pytest.mark.parametrize("name", ["contrastive", "gathered and own"])
def test_one_process_has_all_rows(name: str) -> None:
    one, other = (dict(train(CASES[name], make_step(CASES[name], kind), 5)) for kind in ("none", "replicated"))
    assert all(np.abs(one[key] - other[key]).max(initial=0) < 1e-12 for key in one)


def test_mode_infer_has_whole_batches() -> None:
    shown = "  shown: {call: all_gather, inputs: z_a, mode: infer}\noutputs: [shown, "
    text = write_text(CASES["contrastive"], REPLICATED.kind).replace("outputs: [", shown)
    (function,) = compile_step(load(text)).program.mode("infer").functions
    assert not [each for each in function.instructions if each.message]


def test_without_processes_they_are_the_value_and_its_mean() -> None:
    text = "graphspec: 1\nname: one\ninputs: {x: {shape: [batch, 2]}, y: {shape: [batch], dtype: int64}}\nops:\n"
    text += "  all_x: {call: all_gather, inputs: x}\n  all_y: {call: all_gather, inputs: y}\n"
    text += "  level: {call: all_mean, inputs: all_x}\noutputs: [all_x, all_y, level]\n"
    step = build(compile_step(load(text)), device="cpu")
    x, y = np.array([[1, 2], [3, 6]], np.float32), np.array([4, 5])
    given = {key: step.numpy(value) for key, value in step({"x": x, "y": y}, mode="eval").items()}
    assert (given["all_x"].tolist(), given["all_y"].tolist()) == (x.tolist(), [4, 5])
    assert given["level"].tolist() == [2, 4]


def refuse(text: str) -> str:
    """Return the errors of a spec."""
    with pytest.raises(SpecError) as raised:
        compile_step(load(text))
    return "\n".join(f"{each.code} {each.message}" for each in raised.value.diagnostics if each.severity == "error")


NEAR = "near: {loss: mse, inputs: [z_a, 0.3], weight: 0.5}"
REFUSED = {
    "rows of one and of all": (
        NEAR,
        "near: {loss: mse, inputs: [z_a, all_b]}",
        "E-REPLICAS 'near' mixes 'all_b', which has the rows of all processes, with the rows of one",
    ),
    "all queries of one and of all": (
        NEAR,
        'near: {expr: "mean(logsumexp(z_a @ permute(all_b, dims=[1, 0]), axis=1))"}',
        "mixes 'near.1', which has the rows of all processes, with the rows of one",
    ),
    "drawn rows": (
        NEAR,
        "drawn: {random: normal, shape: [batch, 3]}\n  moved: {call: add, inputs: [all_a, drawn]}\n"
        "  near: {call: mean, inputs: moved}",
        "E-REPLICAS 'moved' mixes 'all_a'",
    ),
    "a gathered factor": (
        NEAR,
        "own: {loss: mse, inputs: [z_a, 0.3]}\n  near: {call: mul, inputs: [own, far]}",
        "E-REPLICAS the gradient of 'near' by 'far', which is made of gathered rows, differs between processes",
    ),
    "a gathered centre of rows": (
        NEAR,
        'near: {expr: "mean(square(z_a - middle))"}',
        "E-REPLICAS the gradient of 'near.1' by 'middle', which is made of gathered rows, differs between processes",
    ),
    "a gradient again": (
        NEAR,
        "slope: {gradient: far, wrt: z_a}\n  near: {call: mean, inputs: slope}",
        "E-REPLICAS the gradient 'slope' goes back through gathered rows, and is differentiated again",
    ),
    "a number": (
        NEAR,
        "level_of_a: {call: mean, inputs: z_a, args: {axis: 0}}\n  all_levels: {call: all_gather, inputs: level_of_a}\n"
        "  near: {call: mean, inputs: all_levels}",
        "E-REPLICAS 'all_levels' gathers 'level_of_a', a number of the batch, which has no rows",
    ),
    "rows along another axis": (
        NEAR,
        "turned: {call: permute, inputs: z_a, args: {dims: [1, 0]}}\n  levels: {call: all_mean, inputs: turned}\n"
        "  near: {call: mean, inputs: levels}",
        "E-REPLICAS 'levels' takes the mean over axis 0 of 'turned', whose rows lie along axis 1",
    ),
    "a layer that adds up what all have": (
        "head: {layers: [{linear: 3}]",
        "head: {layers: [{linear: 3}, {batch_norm: {sync: true}}]",
        "E-REPLICAS 'p_a' reads the rows of all processes, and 'head' adds up what each has (`sync: true`)",
    ),
    "sums of processes": (
        "kind: replicated",
        "kind: replicated, reduce: sum",
        "E-REPLICAS 'all_a' gathers the rows of all processes, and each takes the gradient on its own",
    ),
    "micro-batches of processes": (
        "name: case",
        "name: case\nmicro_batches: 2",
        "E-MICRO 'all_a' gathers the rows of the whole batch, but a micro-batch has only some of them",
    ),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_processes_cannot_share_with_gathered_rows_is_refused(title: str) -> None:
    old, new, message = REFUSED[title]
    text = write_text(CASES["gathered and own"], REPLICATED.kind)
    assert old in text
    assert message in refuse(text.replace(old, new))


def test_micro_batches_of_one_process_have_not_all_rows_either() -> None:
    assert "E-MICRO 'all_a' gathers the rows of the whole batch" in refuse(
        "graphspec: 1\nname: parts\nmicro_batches: 2\n" + SIMCLR
    )


def test_a_scalar_has_no_rows() -> None:
    text = "graphspec: 1\nname: scalar\n" + MIXED.replace(
        "middle: {call: all_mean, inputs: z_b}", "middle: {call: all_mean, inputs: far}"
    )
    assert "E-SHAPE call 'middle': found a scalar, expected a value with rows for `all_mean`" in refuse(text)


ALLOWED = {
    "a constant factor": "fixed: {call: stop, inputs: far}\n  own: {loss: mse, inputs: [z_a, 0.3]}\n"
    "  near: {call: mul, inputs: [own, fixed]}",
    "a constant centre": 'near: {expr: "mean(square(z_a - stop(middle)))"}',
    "a draw like it": "drawn: {random: normal, like: all_a}\n  moved: {call: add, inputs: [all_a, drawn]}\n"
    "  near: {call: mean, inputs: moved}",
    "gathered again": "once: {call: all_gather, inputs: all_a}\n  level_of_a: {call: all_mean, inputs: once}\n"
    "  near: {loss: mse, inputs: [level_of_a, 0.3]}",
    "a gradient by gathered rows": "slope: {gradient: far, wrt: all_a}\n  near: {call: norm, inputs: slope}",
}


@pytest.mark.parametrize("title", ALLOWED)
def test_what_is_the_same_on_all_may_be_combined(title: str) -> None:
    text = write_text(CASES["gathered and own"], REPLICATED.kind)
    compile_step(load(text.replace(NEAR, ALLOWED[title])))


@pytest.mark.parametrize("run", [REPLICATED, SHARDED], ids=["replicated", "sharded"])
def test_rows_that_are_gathered_and_returned_are_sent_once(folder: Path, run: Run) -> None:
    with np.load(run.path(folder, "contrastive.sent", 0)) as sent:  # the numbers of rows, and then the rows
        # three of five rows, of two views, each of three numbers of four bytes; the last batch has six rows
        assert sent["sent by all_gather"][: 2 * STEPS].tolist() == [8, 2 * 3 * 3 * 4] * STEPS


def test_a_value_is_sent_once_whatever_is_made_of_it() -> None:
    text = write_text(CASES["contrastive"], REPLICATED.kind)
    text = text.replace("ops:\n", "ops:\n  again: {call: all_gather, inputs: z_a, every: 2}\n", 1)
    text = text.replace("outputs: [", "outputs: [again, ")
    made: list[set[str]] = []
    for function in compile_step(load(text)).program.mode("train").functions:
        starts = [each for each in function.instructions if isinstance(each, Start) and each.collective == "gather"]
        assert [part.value for start in starts for part in start.parts] == ["z_a#own.kept", "z_b"]
        made.append({whole for start in starts for part in start.parts for whole in part.wholes})
    assert sorted(made, key=len) == [{"z_a", "all_a", "all_b"}, {"z_a", "all_a", "all_b", "again"}]

"""Replicas take the step of one process, each on its own rows: real gloo processes beside one process without them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_step
from compiler.ir.instructions import Forward, Gradient, Start
from compiler.ir.verify import InvariantError, verify
from graphspec import SpecError, load
from runtime import StepError
from tests.processes.cases import (
    ALL,
    ALONE,
    BUCKETS,
    CASES,
    EVERYTHING,
    FIT,
    PENALTY,
    PLAIN,
    REPLICATED,
    RUNS,
    SHARDED,
    STEPS,
    SURGERY,
    SYNCED,
    TOLD,
    TRAINED,
    Run,
    by_run,
    draw,
    found,
    make_step,
    train,
    write_text,
)
from tests.processes.mutants import MUTANTS, Misplaced
from tests.processes.worker import JUDGED

COUNT = 8
"""The bytes with which a process tells the others how many rows it has."""

pytestmark = pytest.mark.xdist_group("replicas")  # one worker starts the processes


@cache
def alone(name: str, rows: int) -> dict[str, np.ndarray]:
    """Return what one process finds on all rows."""
    return dict(train(TRAINED[name], make_step(TRAINED[name]), rows))


@pytest.mark.parametrize(
    ("run", "name"),
    [pytest.param(run, name, id=f"{run.title} {name}") for run in RUNS for name in run.names if name in ALL],
)
def test_processes_have_the_numbers_of_one(folder: Path, run: Run, name: str) -> None:
    whole, parts = alone(name, run.rows), found(folder, name, run)
    assert all(part.keys() == whole.keys() for part in parts)
    for key, value in whole.items():
        for part in parts:
            np.testing.assert_allclose(part[key], value, rtol=0, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("run", [REPLICATED, SHARDED], ids=["replicated", "sharded"])
@pytest.mark.parametrize("name", TOLD)
def test_processes_that_know_the_rows_of_all_do_not_tell_each_other(folder: Path, run: Run, name: str) -> None:
    whole = dict(train(TRAINED[name], make_step(TRAINED[name]), run.rows, last=7))
    for part in found(folder, f"{name}, told", run):
        for key, value in whole.items():
            np.testing.assert_allclose(part[key], value, rtol=0, atol=1e-10, err_msg=key)
    counts: list[int] = []
    for each in (f"{name}.sent", f"{name}, told"):
        with np.load(run.path(folder, each, 0)) as sent:
            counts.append(list(sent.get("sent by all_gather", ())).count(COUNT))
    assert counts[0] - counts[1] == STEPS + TRAINED[name].eval


def test_a_process_that_does_not_have_its_share_of_the_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["simultaneous"]
    step = make_step(case, "replicated")
    step(draw(case, step, 3, 0), rows=4)  # one process has all rows, and needs to be told nothing
    replicas = step._built.engine.loaded.names["replicas"]
    monkeypatch.setattr(replicas, "count", 2)
    monkeypatch.setattr(step._built.engine.equality, "is_due", False)  # there is no other process
    with pytest.raises(StepError, match="rank 0 has 3 rows of the batch, and not its share, which are 2 of 4"):
        step(draw(case, step, 3, 0), rows=4)


@pytest.mark.parametrize("rows", [0, -4, 4.0, "4"])
def test_a_number_of_rows_that_is_none_is_refused_before_the_step(rows: int) -> None:
    case = CASES["simultaneous"]
    step = make_step(case, "replicated")
    with pytest.raises(StepError, match=r"error\[GS209\]: `rows` is .*not how many rows all processes have"):
        step(draw(case, step, 4, 0), rows=rows)
    assert step.report.step == 0
    step(draw(case, step, 4, 0), rows=4)


@by_run(RUNS)
def test_weights_are_equal_bit_for_bit(folder: Path, run: Run) -> None:
    different = [
        (name, key)
        for name in run.names
        for first, *others in [found(folder, name, run)]
        for key in first
        if key.startswith("models.") and ".running_" not in key
        if not all(np.array_equal(first[key], each[key], equal_nan=True) for each in others)
    ]
    assert different == []


def test_one_process_without_a_group_is_the_only_replica() -> None:
    case = CASES["everything in parts"]
    one, *others = (dict(train(case, make_step(case, each), 5)) for each in ("none", "replicated", "sharded"))
    assert all(np.abs(one[key] - other[key]).max(initial=0) < 1e-12 for other in others for key in one)


@pytest.mark.parametrize("how", ["rank0", "mean", "local"])
def test_buffers_are_those_of_the_first_the_mean_or_ones_own(folder: Path, how: str) -> None:
    parts, running = found(folder, how), [np.zeros(4), np.zeros(4)]
    for number in range(STEPS):
        x = draw(ALONE[how], make_step(ALONE[how]), 5, number)["x"]
        # momentum 0.1, as PyTorch has it
        running = [0.9 * old + 0.1 * own.mean(0) for old, own in zip(running, np.array_split(x, 2), strict=True)]
        if how != "local":
            shared = running[0] if how == "rank0" else (running[0] + running[1]) / 2
            running = [shared, shared]
    for part, expected in zip(parts, running, strict=True):
        np.testing.assert_allclose(part["models.net.0.running_mean"], expected, rtol=0, atol=1e-12)


def test_dropout_draws_other_numbers_on_every_replica(folder: Path) -> None:
    case = ALONE["dropping"]
    step = make_step(case)
    rows = np.array_split(draw(case, step, 5, 0)["x"], 2)
    first = [np.asarray(step({"x": rows[0]})["out"])]
    outputs = found(folder, "dropping")[0]["out 0"]
    np.testing.assert_allclose(outputs[:3], first[0], rtol=0, atol=1e-12)  # the first draws as one process does
    step = make_step(case)
    assert np.abs(outputs[3:] - np.asarray(step({"x": rows[1]})["out"])).min() > 1e-6


COUPLED = """
graphspec: 1
name: coupled
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models: {net: {layers: [{linear: 3}], optimizer: sgd}}
ops:
  a: {forward: net, inputs: x}
  b: {forward: net, inputs: y}
  loss: {loss: nt_xent, inputs: [a, b]}
  step: {update: net, loss: loss}
"""


def test_what_couples_rows_is_named() -> None:
    (warning,) = compile_step(load(COUPLED)).warnings
    assert (warning.code, warning.message) == (
        "W-COUPLED",
        "'loss' sees one replica at a time: `nt_xent` compares samples with each other",
    )


def test_layers_that_agree_couple_nothing_unless_in_micro_batches() -> None:
    assert not compile_step(load(write_text(CASES["synced"], REPLICATED.kind))).warnings
    parts = replace(CASES["synced"], head="micro_batches: 2")
    assert [each.code for each in compile_step(load(write_text(parts, REPLICATED.kind))).warnings] == ["W-COUPLED"]


def test_layers_that_have_no_others_to_agree_with_are_refused() -> None:
    with pytest.raises(SpecError, match=r"E-REPLICAS.*'net' normalizes over the rows of all processes"):
        compile_step(load("graphspec: 1\nname: alone\n" + SYNCED + PLAIN))


def list_messages(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return what each message of a case's longest step sends, and the models that run and differentiate meanwhile."""
    functions = make_step(CASES[name], REPLICATED.kind).plan.program.mode("train").functions
    instructions = max((function.instructions for function in functions), key=len)
    found: dict[str, tuple[str, list[str]]] = {}
    for at, start in enumerate(instructions):
        if isinstance(start, Start):
            rest = instructions[at + 1 :]
            end = next(place for place, each in enumerate(rest) if each.message == start.output)
            works = [each.op for each in rest[:end] if isinstance(each, Forward | Gradient)]
            found[start.output.removesuffix("#sent")] = ", ".join(start.operands), works
    return found


def test_values_leave_together_and_others_work_meanwhile() -> None:
    assert list_messages("strangers") == {
        "step_a": ("a_loss#own.kept, step_a#own", ["by_b", "step_b", "by_c", "step_c"]),
        "step_b": ("b_loss#own.kept, step_b#own", ["by_c", "step_c"]),
        "step_c": ("c_loss#own.kept, step_c#own", []),
    }
    assert list_messages("dcgan") == {  # the next forward reads what step_d writes; `on_real` makes two calls
        "fake": ("fake#own.kept", ["on_real", "step_d", "judged", "step_g"]),
        "step_d": ("d_loss#own.kept, step_d#own", []),
        "step_g": ("g_loss#own.kept, step_g#own", []),
    }
    # a window is sent once, and with it what its last step returns
    assert list_messages("accumulated in parts") == {"step.collected": ("loss#own, step.collected#own", [])}
    assert list_messages("dropped") == {  # the window waits for the verdict over what it takes in
        "step.finite": ("loss#own.kept, step.finite#own", []),
        "step.collected": ("step.collected#own", []),
    }
    assert list_messages("everything") == {  # rows are gathered, all else is added up
        "far": ("out#own.kept, x, far#own", []),
        "step": ("size#own.kept, fit#own.share, loss#own.kept, mean#own.share, step#own", []),
    }


def list_sent(part: Mapping[str, np.ndarray]) -> Mapping[str, list[int]]:
    """Return the bytes of the messages of a process, by collective."""
    return {key: value.tolist() for key, value in part.items() if key.startswith("sent by ")}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(folder: Path, mutant: Misplaced) -> None:
    match mutant.killer:
        case "numbers":  # those that other tests compare with one process, or with the published rule
            pairs = zip(found(folder, mutant.case, mutant.run), found(folder, mutant.name, mutant.run), strict=True)
            assert any(
                not np.allclose(part[key], value, rtol=0, atol=1e-4, equal_nan=True)
                for right, part in pairs
                for key, value in right.items()
            )
        case "bytes":
            right, wrong = (found(folder, name, mutant.run)[0] for name in (f"{mutant.case}.sent", mutant.name))
            assert list_sent(right) != list_sent(wrong)
        case "error":
            assert all("error" in part for part in found(folder, mutant.name, mutant.run))
        case "messages":
            right = list_messages(mutant.case)
            with mutant.applied():
                assert list_messages(mutant.case) != right
        case "verifier":
            text = write_text(CASES[mutant.case], REPLICATED.kind)
            compile_step(load(text), hook=verify)
            with mutant.applied(), pytest.raises(InvariantError):
                compile_step(load(text), hook=verify)


def test_random_specs_agree_with_the_oracle(folder: Path) -> None:
    texts = {(folder / f"judged.{rank}.json").read_text(encoding="utf-8") for rank in range(2)}
    assert len(texts) == 1
    outcomes = [*json.loads(texts.pop()).values()]
    assert outcomes.count("agreed") == JUDGED
    assert not [each for each in outcomes if each.startswith("mismatch")]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        *((REPLICATED, name) for name in ("simultaneous", "cyclegan in parts", "counted", "surgery", "rank0", "mean")),
        (REPLICATED, "slopes of gathered"),
        (BUCKETS, "strangers"),
    ],
)
def test_the_plan_says_how_much_is_sent(folder: Path, run: Run, name: str) -> None:
    (function,) = run.make_step({**CASES, **ALONE}[name]).plan.to_json(processes=2)["functions"]
    with np.load(run.path(folder, f"{name}.sent", 0)) as found:
        for collective, call in {"sum": "all_reduce", "broadcast": "broadcast"}.items():
            planned = sum(each["bytes"] for each in function["messages"] if each["collective"] == collective)
            assert planned * STEPS == np.sum(found.get(f"sent by {call}", 0))


def test_buckets_leave_while_gradients_are_taken(folder: Path) -> None:
    sizes = {run.options: dict(np.load(run.path(folder, "strangers.sent", 0))) for run in (REPLICATED, BUCKETS)}
    assert "sent by early" not in sizes[REPLICATED.options]
    found, whole = sizes[BUCKETS.options], sizes[REPLICATED.options]
    assert found["sent by all_reduce"].sum() == whole["sent by all_reduce"].sum()
    assert len(whole["sent by all_reduce"]) == 3 * STEPS  # three models, each with a set of its own
    # a linear layer of 6 to 3 numbers has 84 bytes: the last one leaves before the first one's gradients are there
    assert len(found["sent by early"]) >= 3 * STEPS


def test_the_plan_says_in_which_pieces_gradients_travel() -> None:
    text = compile_step(load(write_text(CASES["strangers"], BUCKETS.kind, BUCKETS.options))).text(processes=2)
    assert "the sum of a_loss, step_a; 444 B, in buckets of 100 B" in text


@pytest.mark.parametrize("kind", ["none", "sharded"])
def test_buckets_that_would_change_nothing_are_refused(kind: str) -> None:
    with pytest.raises(SpecError, match=r"GS056.*`bucket_mb` goes with `kind: replicated`"):
        load(write_text(CASES["strangers"], kind, "bucket_mb: 1"))


def test_the_plan_shows_shards_and_what_stays_gathered() -> None:
    head = "graphspec: 1\nname: shown\nparallel: {kind: sharded}\n"
    text = compile_step(load(head + FIT + SURGERY)).text()
    assert [text.count(each) for each in ("reduce_set(", "scatter_set(", "cut_set(")] == [2, 0, 1]  # pcgrad mixes sets
    text = compile_step(load(head + FIT + EVERYTHING)).text()
    assert [text.count(each) for each in ("reduce_set(", "scatter_set(", "cut_set(")] == [0, 1, 0]
    assert "GATHER" not in text
    text = compile_step(load(head + PENALTY)).text()
    assert "the weights of critic stay gathered after forward score: gradient step runs through its gradient" in text


SHARDED = """
graphspec: 1
name: refused
parallel: {kind: sharded}
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models: {net: {layers: [{linear: 5}, tanh, {linear: 2}], optimizer: sgd}}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("optimizer: sgd", "optimizer: lamb", "'lamb' reads whole parameters"),
        ("optimizer: sgd", "optimizer: {class: 'zoo:Own'}", "'zoo:Own' may read whole parameters"),
        ("optimizer: sgd", "optimizer: sgd, constraint: {max_norm: 1.0}", "'step' makes weights satisfy `max_norm`"),
        ("optimizer: sgd", "optimizer: sgd, regularizer: 'zoo:own'", r"adds a penalty \(zoo:own\)"),
        (
            "loss: loss}",
            "loss: loss, clip: {agc: 0.01}}",
            r"'step' compares gradients with whole weights \(`clip_agc`\)",
        ),
        ("inputs: x}", "inputs: x, snapshot: true}", "'out' runs on a copy of the weights of 'net'"),
    ],
)
def test_what_needs_whole_weights_is_refused(old: str, new: str, message: str) -> None:
    text = SHARDED + PLAIN
    assert old in text
    compile_step(load(text))
    with pytest.raises(SpecError, match=f"E-REPLICAS.*{message}, of which a process keeps a shard"):
        compile_step(load(text.replace(old, new)))


TABLE = """
graphspec: 1
name: table
parallel: {kind: replicated}
inputs: {x: {shape: [batch], dtype: int64}}
models: {net: {layers: [{embedding: {count: 5, size: 3, sparse: true}}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: loss}
"""


def test_tables_with_sparse_gradients_are_refused() -> None:
    with pytest.raises(SpecError, match=r"E-REPLICAS.*a table of 'net' has sparse gradients"):
        compile_step(load(TABLE))


def test_a_process_with_fewer_rows_than_micro_batches_is_named() -> None:
    case = CASES["everything in parts"]
    step = make_step(case, "replicated")
    with pytest.raises(Exception, match="rank 0 has 1 rows of the batch, and needs 2 or more"):
        step(draw(case, step, 1, 0))

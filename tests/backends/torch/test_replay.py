"""Graphs that are recorded, by the rules of CUDA graphs: what stays, what is copied, and what is not recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from runtime.backends.torch import capture
from runtime.backends.torch.compat import compile_whole
from runtime.backends.torch.replay import MOST, Recorded, Replayed
from tests.backends.torch.captured_steps import assert_alike, assert_same, draw, pair, plan_of, spec_of
from tests.backends.torch.recorder import HostRecorder, Refused


@pytest.fixture
def recorder(monkeypatch):
    """Record graphs that run as Dynamo has found them."""
    made = HostRecorder()
    monkeypatch.setattr(capture, "COMPILER", lambda graph, inputs: graph.forward)
    monkeypatch.setattr(capture, "find_recorder", lambda device: made)
    yield made
    torch._dynamo.reset()


def test_every_size_of_batch_is_rehearsed_and_recorded_once(recorder):
    told: list[str] = []
    eager, captured = pair(spec_of("adam"), report=told.append)
    for rows in (4, 3, 4, 3):
        assert_same(eager, captured, draw(eager, 4, rows))
    assert (recorder.rehearsed, recorder.recorded) == (2, 2)
    assert told[2::3] == ["recorded train (step) as a CUDA graph"] * 2
    assert [each for each in captured.notes if "recorded" in each] == [
        "train (step) is one graph, compiled in its first step and recorded in its third"
    ]


def test_dropout_and_noise_are_drawn_anew_for_every_replay(recorder):
    eager, captured = pair(plan_of("gan-digits"))
    assert_same(eager, captured, draw(eager, 6))
    assert recorder.recorded == 1


@pytest.mark.parametrize("accumulate", [1, 3])
def test_numbers_of_the_host_change_from_replay_to_replay(recorder, accumulate):
    curve = {"schedule": "cosine", "from": 0.1, "to": 0.01, "over": 20}
    average = {"average": {"ema": "net", "decay": {"schedule": "linear", "from": 0.5, "to": 0.9, "over": 20}}}
    eager, captured = pair(spec_of({"name": "adamw", "lr": curve}, accumulate=accumulate, further=average))
    assert_same(eager, captured, draw(eager, 15))
    assert recorder.recorded >= 1


def test_results_of_a_step_stay_as_they_are(recorder):
    _, captured = pair(spec_of("adam"))
    found = [captured(batch)["loss"] for batch in draw(captured, 6)]
    kept = [each.clone() for each in found]
    for batch in draw(captured, 3):
        captured(batch)
    assert torch.equal(torch.stack(found), torch.stack(kept))
    assert len({each.item() for each in found}) == 6


def test_a_batch_that_is_filled_again_and_then_another(recorder):
    eager, captured = pair(spec_of("adam"))
    same = next(draw(captured, 1))

    def refill(step):
        for batch in draw(step, 5):
            for name, each in batch.items():
                same[name].copy_(each)
            yield same
        yield from draw(step, 3)

    for batch in refill(captured):
        torch.testing.assert_close(eager(batch)["loss"], captured(batch)["loss"])
    assert_alike(eager, captured)
    assert recorder.recorded == 1


def test_a_batch_that_shows_one_row_several_times_and_one_that_is_a_part(recorder):
    eager, captured = pair(spec_of("adam"))
    generator = torch.Generator().manual_seed(1)
    rows, wide = (
        [torch.rand(size, generator=generator, dtype=torch.float64) for _ in range(5)] for size in ((1, 4), (4, 6))
    )
    assert_same(eager, captured, [{"x": x.expand(4, 4), "y": y[:, ::2]} for x, y in zip(rows, wide, strict=True)])
    assert recorder.recorded == 1


def test_weights_that_are_replaced_are_recorded_again(recorder):
    eager, captured = pair(spec_of("adam"))
    assert_same(eager, captured, draw(eager, 4))
    for step in (eager, captured):
        for parameter in step.models["net"].parameters():
            parameter.data = parameter.data * 0.5
    assert_same(eager, captured, draw(eager, 4))
    assert recorder.recorded == 2


def test_weights_that_move_in_every_step_are_given_up(recorder):
    eager, captured = pair(spec_of("sgd"))

    def moving():
        for batch in draw(eager, MOST + 3):
            yield batch
            for parameter in captured.models["net"].parameters():
                parameter.data = parameter.data.clone()

    with pytest.warns(UserWarning, match=r"train \(step\) is not recorded as a CUDA graph: its tensors have moved"):
        assert_same(eager, captured, moving())


def test_a_new_version_of_every_weight_that_a_replay_writes(recorder):
    _, captured = pair(spec_of("adam"))
    weights = [*captured.models["net"].parameters()]
    for batch in draw(captured, 5):
        before = [each._version for each in weights]
        captured(batch)
        assert all(each._version > old for each, old in zip(weights, before, strict=True))


SCALE = torch.tensor(2.0)


def scaled(batch):
    """Return what a step of a device gives that reads a number of the host."""
    return {"y": batch["x"] * SCALE}


def test_a_number_on_the_host_is_known_before_a_graph_runs():
    recorded = Recorded(
        title="train",
        compiler=lambda graph, inputs: graph.forward,
        recorder=HostRecorder(),
        device=torch.device("meta"),
        report=lambda line: None,
    )
    run = compile_whole(scaled, recorded)
    assert run({"x": torch.ones(2, device="meta")})["y"].shape == (2,)
    assert recorded.obstacles == ["`G['SCALE']` is a tensor of the host"]
    torch._dynamo.reset()


def test_a_graph_that_cannot_be_recorded_says_why_and_runs_on(monkeypatch):
    class Waiting(HostRecorder):
        """Finds at the end that it cannot record what it has seen."""

        def record(self, run):
            super().record(run)
            raise Refused("a kernel waits for the device")

    monkeypatch.setattr(capture, "COMPILER", lambda graph, inputs: graph.forward)
    monkeypatch.setattr(capture, "find_recorder", lambda device: Waiting())
    eager, captured = pair(spec_of("adam"))
    assert_same(eager, captured, draw(eager, 2))
    with pytest.warns(UserWarning, match=r"is not recorded as a CUDA graph: a kernel waits for the device"):
        assert_same(eager, captured, draw(eager, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(eager, captured, draw(eager, 3))
    torch._dynamo.reset()


def test_one_graph_for_all_sizes_is_not_recorded(recorder):
    eager, captured = pair(spec_of("adam"), "dynamic")
    for rows in (4, 3, 5, 4):
        assert_same(eager, captured, draw(eager, 1, rows))
    assert recorder.rehearsed == 0


def test_an_output_that_is_a_view_of_what_stays_shows_what_it_becomes():
    weight = torch.ones(2)
    made = Replayed(
        title="run",
        run=lambda x, w: [w.add_(x)[1:], w + 1],
        draw=lambda *given: (),
        recorder=HostRecorder(),
        report=lambda line: None,
        reason="",
        moving={0},
    )
    views, sums = zip(*(made(torch.tensor([1.0, each]), weight) for each in range(5)), strict=True)
    assert weight.tolist() == [6.0, 11.0]
    assert [each.data_ptr() for each in views] == [weight[1:].data_ptr()] * 5
    assert [each.tolist() for each in sums] == [[3.0 + each, 2.0 + sum(range(each + 1))] for each in range(5)]


@pytest.mark.parametrize(
    "names",
    [("gan-digits", "dqn"), pytest.param((), marks=pytest.mark.long)],
    ids=["two", "all"],
)
def test_graphs_on_a_device_read_nothing_of_the_host(names):
    run = [sys.executable, "-m", "tests.backends.torch.host_tensors", *names]
    lines = subprocess.run(run, capture_output=True, text=True, check=True, env=os.environ).stdout.splitlines()
    found = dict(map(json.loads, lines))
    assert len(found) == (len(names) or 32)
    assert {name: {key: why for key, why in each.items() if why} for name, each in found.items()} == {
        name: {} for name in found
    }
    assert all(found.values())

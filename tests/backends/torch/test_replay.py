"""Graphs that are recorded, by the rules of CUDA graphs: what stays, what is copied, and what is not recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from runtime.backends.torch import capture, replay
from runtime.backends.torch.compat import Whole
from runtime.backends.torch.replay import MOST, CudaRecorder, Recorded, Replayed
from runtime.problems import StepError
from tests.backends.torch.captured_steps import assert_alike, assert_same, draw, pair, plan_of, spec_of
from tests.backends.torch.recorder import HostRecorder, Refused


@pytest.fixture
def recorder(monkeypatch):
    """Record graphs that run operation by operation."""
    made = HostRecorder()
    monkeypatch.setattr(capture, "COMPILER", "aot_eager")
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
        "train (step) is one graph, compiled in its first step and to be recorded in its third"
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


def test_factors_of_penalties_change_from_replay_to_replay(recorder):
    curve = {"schedule": "cosine", "from": 0.1, "to": 0.01, "over": 20, "clock": "steps"}
    eager, captured = pair(spec_of({"name": "sgd", "lr": 0.1}, own={"regularizer": [{"l1": curve}, {"l2": curve}]}))
    assert_same(eager, captured, draw(eager, 15))
    assert recorder.recorded == 1


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
        [torch.rand(size, generator=generator, dtype=torch.float64) for _ in range(5)] for size in ((1, 4), (4, 60))
    )
    for each in (slice(None, 6, 2), slice(None, None, 20)):  # with little and with much between the elements
        assert_same(eager, captured, [{"x": x.expand(4, 4), "y": y[:, each]} for x, y in zip(rows, wide, strict=True)])
    assert recorder.recorded == 2


def test_weights_that_are_replaced_are_recorded_again_as_often_as_they_are(recorder):
    eager, captured = pair(spec_of("sgd"))
    assert_same(eager, captured, draw(eager, 4))
    for _ in range(MOST + 1):
        for step in (eager, captured):
            for parameter in step.models["net"].parameters():
                parameter.data = parameter.data * 0.5
        assert_same(eager, captured, draw(eager, 2))
    assert recorder.recorded == MOST + 2


def test_weights_that_move_in_every_step_are_given_up(recorder):
    eager, captured = pair(spec_of("sgd"))

    def moving():
        for batch in draw(eager, MOST + 4):
            yield batch
            for parameter in captured.models["net"].parameters():
                parameter.data = parameter.data.clone()

    with pytest.warns(UserWarning, match=r"train \(step\) is not recorded as a CUDA graph: its tensors are elsewhere"):
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


def record_on(device):
    """Return a compiler that records graphs on a device."""
    return Recorded(
        title="train",
        compiler=lambda graph, inputs: graph.forward,
        recorder=HostRecorder(),
        device=torch.device(device),
        report=lambda line: None,
    )


def test_a_number_on_the_host_is_known_before_a_graph_runs():
    recorded = record_on("meta")
    run = Whole(scaled, recorded)
    assert run({"x": torch.ones(2, device="meta")})["y"].shape == (2,)
    assert recorded.obstacles == ["`G['SCALE']` is a tensor on the host"]
    torch._dynamo.reset()


def is_not_recorded(reason: str):
    """Return a context in which a warning says why a graph is not recorded."""
    return pytest.warns(UserWarning, match=rf"train \(step\) is not recorded as a CUDA graph: {reason}")


def test_a_graph_that_cannot_be_recorded_says_why_and_runs_on(recorder, monkeypatch):
    def refuse(run):
        HostRecorder.record(recorder, run)
        raise Refused("an operation is not permitted")

    monkeypatch.setattr(recorder, "record", refuse)
    eager, captured = pair(spec_of("adam"))
    assert_same(eager, captured, draw(eager, 2))
    with is_not_recorded("an operation is not permitted"):
        assert_same(eager, captured, draw(eager, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(eager, captured, draw(eager, 3))


@pytest.mark.sample(2)
@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
@pytest.mark.parametrize("at", ["rehearse", "record"])
def test_what_ends_a_rehearsal_or_a_recording_leaves_a_step_that_can_go_on(recorder, monkeypatch, at, error):
    eager, captured = pair(spec_of("adam"))
    before = {"rehearse": 1, "record": 2}[at]
    assert_same(eager, captured, draw(eager, before))
    state = captured.state()

    def fail(run):
        monkeypatch.undo()
        monkeypatch.setattr(capture, "find_recorder", lambda device: recorder)
        raise error("here")

    monkeypatch.setattr(recorder, at, fail)
    batch = next(draw(captured, 1))
    if (at, error) == ("record", torch.OutOfMemoryError):
        with is_not_recorded("here"):
            captured(batch)
    else:
        with pytest.raises((KeyboardInterrupt, StepError)):
            captured(batch)
    captured.restore(state)
    assert_same(eager, captured, draw(eager, 4))
    assert recorder.recorded == int((at, error) != ("record", torch.OutOfMemoryError))


@torch.library.custom_op("replayed::refusing", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def refusing(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor, in an operator that must not be recorded."""
    return x.clone()


@refusing.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_an_operation_that_waits_for_the_device_is_noticed_before_a_recording(recorder, monkeypatch):
    monkeypatch.setattr(recorder, "rehearse", lambda run: (run(), "some operation waits for the device"))
    eager, captured = pair(spec_of("adam"))
    assert_same(eager, captured, draw(eager, 1))
    with is_not_recorded("some operation waits for the device"):
        assert_same(eager, captured, draw(eager, 1))
    assert_same(eager, captured, draw(eager, 3))
    assert recorder.recorded == 0


def test_an_operator_that_must_not_be_recorded_is_known_before_a_graph_runs():
    recorded = record_on("cpu")
    run = Whole(lambda batch: {"y": refusing(batch["x"])}, recorded)
    run({"x": torch.ones(2)})
    assert recorded.obstacles == ["`replayed.refusing.default` says of itself that it must not be"]
    torch._dynamo.reset()


def test_a_part_that_is_computed_again_is_recorded(recorder):
    plan = spec_of("adam", further={"out": {"forward": "net", "inputs": "x", "checkpoint": True}})
    eager, captured = pair(plan)
    assert_same(eager, captured, draw(eager, 5))
    assert recorder.recorded == 1


def test_one_graph_for_all_sizes_is_not_recorded(recorder):
    eager, captured = pair(spec_of("adam"), "dynamic")
    for rows in (4, 3, 5, 4):
        assert_same(eager, captured, draw(eager, 1, rows))
    assert recorder.rehearsed == 0


def replayed(run, moving=(0,)):
    """Return what runs a graph, first as it is, and then as a recording; some inputs move in every step."""
    return Replayed(
        title="train (step)",
        run=run,
        draw=lambda *given: (),
        recorder=HostRecorder(),
        report=lambda line: None,
        reason="",
        moving={*moving},
    )


def test_an_output_that_is_a_view_of_what_stays_shows_what_it_becomes():
    weight = torch.ones(2)
    made = replayed(lambda x, w: [w.add_(x)[1:], w + 1])
    views, sums = zip(*(made(torch.tensor([1.0, each]), weight) for each in range(5)), strict=True)
    assert weight.tolist() == [6.0, 11.0]
    assert [each.data_ptr() for each in views] == [weight[1:].data_ptr()] * 5
    assert [each.tolist() for each in sums] == [[3.0 + each, 2.0 + sum(range(each + 1))] for each in range(5)]


@pytest.mark.parametrize("run", [lambda x, w: [x.add_(w)], lambda x, w: [w.add_(1.0), x * 2]])
def test_a_graph_that_writes_into_its_batch_or_its_memory_is_not_recorded(run):
    wanted, weight = torch.ones(4), torch.ones(4)
    made = replayed(run)
    with is_not_recorded("it writes into its batch, or into memory of it"):
        for _ in range(4):
            for ours, known in zip(made(weight[:2], weight[:2]), run(wanted[:2], wanted[:2]), strict=True):
                torch.testing.assert_close(ours, known, rtol=0, atol=0)
    assert torch.equal(weight, wanted)


def test_inputs_without_elements_are_not_copied():
    made = replayed(lambda x, y: [x + y.sum()], moving=(0, 1))
    found = [made(torch.full((2,), float(each)), torch.ones(0)) for each in range(4)]
    assert [each.tolist() for (each,) in found] == [[float(each)] * 2 for each in range(4)]
    assert made.recording is not None
    assert made.recording.copied == [0]


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


class Stream:
    """A stream of CUDA by name; as a context, it is the current one."""

    current = "outside"

    def __init__(self, name: str | Stream) -> None:
        self.name, self.device = name if isinstance(name, str) else name.name, "cuda:0"
        self.awaited: list[str] = []

    def wait_stream(self, other: Stream) -> None:
        self.awaited.append(other.name)

    def __enter__(self) -> None:
        self.before, Stream.current = Stream.current, self.name

    def __exit__(self, *error: object) -> None:
        Stream.current = self.before


class Graph:
    """A CUDA graph; it cannot be ended once something in it has failed."""

    is_broken = False

    def capture_begin(self, *given: object, **options: object) -> None:
        self.stream = Stream.current

    def capture_end(self) -> None:
        if self.is_broken:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        """Do nothing."""


@pytest.fixture
def cuda(monkeypatch):
    """Record on streams and graphs that are not there, of which PyTorch's own context begins and ends."""
    monkeypatch.setattr(torch.cuda, "stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    for name in ("synchronize", "empty_cache", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *given: None)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("outside"))
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    cleared: list[str] = []
    monkeypatch.setattr(replay, "clear_workspaces", lambda: cleared.append(Stream.current))
    recorder = object.__new__(CudaRecorder)
    recorder.stream, recorder.pool, recorder.keeper = Stream("aside"), None, None
    return recorder, cleared


def test_a_rehearsal_notices_that_the_host_waits_and_passes_on_other_warnings(cuda):
    recorder, _ = cuda

    def run():
        warnings.warn("something else", DeprecationWarning, stacklevel=1)
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=1)
        warnings.warn("called a synchronizing CUDA operation (Triggered internally)", UserWarning, stacklevel=1)
        return [Stream.current]

    with pytest.warns(DeprecationWarning, match="something else") as seen:
        assert recorder.rehearse(run) == (["aside"], "some operation waits for the device")
    assert len(seen) == 1
    assert recorder.rehearse(lambda: [1]) == ([1], "")
    assert recorder.stream.awaited == ["outside", "outside"]
    assert Stream.current == "outside"


def test_the_stream_is_left_and_the_first_error_named_where_a_recording_fails(cuda, monkeypatch):
    recorder, cleared = cuda
    play, found = recorder.record(lambda: [Stream.current])
    assert (found, Stream.current) == (["aside"], "outside")
    assert (play.__self__.stream, recorder.keeper.stream) == ("aside", "aside")
    assert cleared == ["outside"] * 4  # before and after each of the two

    def refuse():
        monkeypatch.setattr(Graph, "is_broken", True)
        raise Refused("not permitted here")

    with pytest.raises(Refused, match="not permitted here"):
        recorder.record(refuse)
    assert Stream.current == "outside"

"""`stepgraph run` by several processes: the files of one process, and one message where something goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from runtime.checkpoints import Checkpoint, read_checkpoint
from runtime.cli import execute
from runtime.state import Array, Plain
from tests.processes.launcher import LINE, launch_twice, run_all, write
from tests.resilience.processes import apart

pytestmark = [pytest.mark.xdist_group("runs of processes"), pytest.mark.needs("torch")]  # one worker starts them

STREAM = LINE.replace("source: npz, path: line.npz, batch: 7, shuffle: true", "class: sources:Stream, batch: 7")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run by one process, to compare others with."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    train(folder, 1)
    return folder


def train(folder: Path, count: int, *options: str) -> None:
    """Let so many processes train to the end."""
    for ended in run_all(folder, *[(*options, "--allow", "sources")] * count):
        assert ended.code == 0, ended.output


def read(folder: Path, step: int) -> Checkpoint:
    return read_checkpoint(folder / "out" / "checkpoints" / f"step-{step}")


def list_files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in (folder / "out").rglob("*"))


def find_gap(one: Array, other: Array) -> float:
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).max(initial=0))


def check_equal(folder: Path, whole: Path) -> None:
    """Assert that two runs have the same files, with the same numbers."""
    assert list_files(folder) == list_files(whole)
    for step in (4, 8, 12, 14):
        found, expected = read(folder, step), read(whole, step)
        assert {name for name in found.arrays if ".parts." not in name} == expected.arrays.keys()
        for name, array in expected.arrays.items():
            assert find_gap(found.arrays[name], array) < 1e-12, (step, name)
        assert found.sections["data"] == expected.sections["data"]
        assert leave_parts(found.sections["counters"]) == expected.sections["counters"]
    check_rows(folder, whole)


def leave_parts(counters: Plain) -> Plain:
    """Return counters without what each of several processes has of a window."""
    if not isinstance(counters, dict):
        return counters
    return {name: leave_parts(each) for name, each in counters.items() if name != "parts"}


def check_rows(folder: Path, whole: Path) -> None:
    """Assert that two runs have logged the same numbers."""
    found, expected = (
        [json.loads(line) for line in (each / "out" / "metrics.jsonl").read_text().splitlines()]
        for each in (folder, whole)
    )
    assert [row.keys() for row in found] == [row.keys() for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert all(abs(row[name] - other[name]) < 1e-12 for name in row.keys() - {"time"})


def test_a_run_of_two_processes_has_the_files_of_one(whole: Path, tmp_path: Path) -> None:
    write(tmp_path)
    train(tmp_path, 2)
    check_equal(tmp_path, whole)
    outputs = [(tmp_path / f"{rank}.txt").read_text() for rank in range(2)]
    assert "step 14/14" in outputs[0]
    assert outputs[1] == ""  # the first shows the run


@pytest.mark.long  # in every run those of the class of `test_a_launcher_starts_a_run_again_that_has_lost_a_process`
def test_batches_of_a_class_are_split(tmp_path: Path) -> None:
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        write(folder, STREAM)
        train(folder, count)
    check_equal(tmp_path / "2", tmp_path / "1")


def test_a_run_goes_on_with_any_number_of_processes(whole: Path, tmp_path: Path) -> None:
    write(tmp_path)
    train(tmp_path, 2, "--steps", "4", "--set", "parallel.kind=sharded")  # in the middle of a window
    files = [path.name for path in (tmp_path / "out" / "checkpoints" / "step-4").iterdir()]
    shards = [f"shard-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    assert sorted(files) == ["manifest.json", *shards, "state.safetensors"]
    train(tmp_path, 1, "--steps", "8", "--resume")
    train(tmp_path, 2, "--steps", "11", "--resume")
    train(tmp_path, 2, "--steps", "14", "--resume", "--set", "parallel.kind=sharded")
    found, expected = read(tmp_path, 14), read(whole, 14)
    assert all(find_gap(found.arrays[name], array) < 1e-12 for name, array in expected.arrays.items())


def train_in_vain(folder: Path, text: str, *options: tuple[str, ...]) -> str:
    """Return what processes print together that fail."""
    write(folder, text)
    ended = run_all(folder, *options)
    assert all(each.code for each in ended), ended
    return "\n".join(each.output for each in ended)


FAILING = LINE.replace("source: npz, path: line.npz", "class: sources:Failing, args: {how: HOW}").replace(
    "timeout: 60", "timeout: 2"
)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", ["error[GS226]: data.train, epoch 2, batch 1: the source raised OSError: no such picture"]),
        ("hangs", ["error[GS259]", "timed out waiting for the other processes", "without an answer: rank 1"]),
    ],
)
def test_a_process_that_fails_ends_all_with_one_message(tmp_path: Path, how: str, said: list[str]) -> None:
    write(tmp_path, FAILING.replace("HOW", how))

    def end_what_hangs(started: list[BaseProcess]) -> None:
        """Do as a launcher does: ask the others to end once one has."""
        started[0].join(60)
        if how == "hangs":
            os.kill(started[1].pid or 0, signal.SIGTERM)

    began = time.monotonic()
    ended = run_all(tmp_path, *[("--allow", "sources")] * 2, meanwhile=end_what_hangs)
    assert time.monotonic() - began < 50  # it would sleep for a minute
    printed = "\n".join(each.output for each in ended)
    assert all(each.code for each in ended)
    assert printed.count("error[") == 1
    assert printed.count("1 error") == 1
    assert all(text in printed for text in said)
    assert f"on rank {1 if how == 'raises' else 0} of 2" in printed
    assert "Traceback" not in printed
    assert read(tmp_path, 4).arrays  # whole


@pytest.mark.parametrize(("every", "step"), [(1, 3), (100, 0)])
def test_processes_that_drift_apart_are_noticed(tmp_path: Path, every: int, step: int) -> None:
    text = FAILING.replace("Failing, args: {how: HOW}", "Drifting").replace(
        "timeout: 2", f"timeout: 60, compare_every: {every}"
    )
    write(
        tmp_path,
        text.replace("optimizer: {name: adam, lr: 0.05}", "optimizer: {name: sgd, lr: 0.05}").replace(
            "accumulate: 3", ""
        ),
    )
    ended = run_all(tmp_path, *[("--allow", "sources", "--steps", "5")] * 2)
    printed = "\n".join(each.output for each in ended)
    assert [each.code for each in ended] == ([1, 1] if step else [0, 0])
    assert printed.count("error[") == bool(step)
    named = f"error[GS258]: after step {step} rank 1 has another models.net.2.bias: "  # no other was moved
    assert (named in printed) == bool(step)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ("07", ["rank 1 has another seed: 7, and rank 0 has 0"]),
        ("700", ["rank 0 has another seed: 7, and 2 ranks have 0"]),
        ("7100", ["rank 0 has another seed: 7, and 2 ranks have 0", "rank 1 has another seed: 1, and 2 ranks have 0"]),
    ],
)
def test_processes_that_were_started_differently_are_refused(tmp_path: Path, seeds: str, said: list[str]) -> None:
    write(tmp_path)
    ended = run_all(tmp_path, *(("--seed", seed) for seed in seeds))
    printed = "\n".join(each.output for each in ended)
    assert [each.code for each in ended] == [1] * len(seeds)
    assert printed.count("error[") == 1
    assert printed.count("has another seed") == len(said)
    assert f"error[GS258]: {said[0]}" in printed
    assert all(each in printed for each in said)
    assert not (tmp_path / "out").exists()


def test_ctrl_c_at_one_process_lets_all_end_after_the_same_step(tmp_path: Path) -> None:
    folder, other = tmp_path / "two", tmp_path / "one"
    for each in (folder, other):
        each.mkdir()
        write(each, LINE.replace("eval: 5 steps, best: {metric: seen, mode: min}", ""))

    def interrupt(started: list[BaseProcess]) -> None:
        while not (folder / "out" / "checkpoints" / "step-8").exists():
            started[0].join(0.05)
            assert started[0].is_alive()
        os.kill(started[1].pid or 0, signal.SIGINT)

    ended = run_all(folder, *[("--steps", "1000000")] * 2, meanwhile=interrupt)
    assert [each.code for each in ended] == [130, 130]
    assert "interrupted (SIGINT)" in ended[0].output
    assert ended[1].output == ""
    made = max(int(path.name.removeprefix("step-")) for path in (folder / "out" / "checkpoints").iterdir())
    train(other, 1, "--steps", str(made))
    found, expected = read(folder, made), read(other, made)
    # a run that is interrupted may have ended the epoch, with which metrics start anew; one that is complete has not
    trained = {name: array for name, array in expected.arrays.items() if not name.startswith("metrics.")}
    assert all(find_gap(found.arrays[name], array) < 1e-10 for name, array in trained.items())


SCALED = """graphspec: 1
name: line
parallel: {kind: replicated}
precision: {loss_scale: dynamic}
inputs: {x: {shape: [batch, 1]}, y: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 3}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.05}}}
ops:
  guess: {forward: net, inputs: x}
  error: {loss: mse, inputs: [guess, y]}
  learn: {update: net, loss: error}
data: {train: {source: npz, path: line.npz, batch: 7}}
run: {steps: 12, log: []}
"""


def test_a_number_that_is_not_finite_on_one_process_skips_the_update_on_all(tmp_path: Path) -> None:
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        write(folder, SCALED)
        rows = dict(np.load(folder / "line.npz"))
        rows["y"][20] = np.inf  # the last row of the third batch: of the second process
        np.savez(folder / "line.npz", allow_pickle=False, **rows)
        train(folder, count)
    found, expected = read(tmp_path / "2", 12), read(tmp_path / "1", 12)
    assert all(find_gap(found.arrays[name], array) < 1e-12 for name, array in expected.arrays.items())
    assert found.sections["counters"] == expected.sections["counters"]
    assert found.sections["counters"]["applied"] == {"net": 10}  # of 12 steps, two of which have that row


def test_the_command_starts_the_processes_itself(tmp_path: Path) -> None:
    write(tmp_path, SCALED)
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "runtime", "run", "line.yaml", "--out", "out", "--nproc", "2", "--steps", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("step 1/1") == 1  # by the first process alone
    assert read(tmp_path, 1).arrays


def test_a_launcher_starts_a_run_again_that_has_lost_a_process(whole: Path, tmp_path: Path) -> None:
    write(tmp_path, FAILING.replace("HOW", "dies").replace("timeout: 2", "timeout: 60"))  # the numbers of the file
    apart("torch", launch_twice, tmp_path)
    check_equal(tmp_path, whole)
    printed = (tmp_path / "printed.txt").read_text()
    assert printed.count("error[") == printed.count("error[GS259]") == 1
    assert "without an answer: rank 1" in printed
    assert "resuming after step 5" in printed


SHOWN = """graphspec: 1
name: line
parallel: {kind: replicated}
inputs: {x: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 16}, tanh, {reshape: [4, 4]}], optimizer: sgd}}
ops:
  z: {random: normal, like: x, mode: [train, eval]}
  moved: {call: add, inputs: [x, z], mode: [train, eval]}
  page: {forward: net, inputs: moved, mode: [train, eval]}
  loss: {loss: mse, inputs: [page, 0.0], mode: train}
  step: {update: net, loss: loss}
  own: {forward: net, inputs: x, mode: infer}
  seen: {call: mean, inputs: own, mode: infer}
outputs: [page, loss, seen]
data: {train: {source: npz, path: line.npz, batch: 8}, test: {source: npz, path: test.npz, batch: 5}}
run:
  steps: 2
  log_every: 1
  images: {value: page, every: 1 steps, data: test}
  eval: {every: 2 steps, mode: infer}
"""


def test_pictures_and_figures_of_other_modes_are_those_of_one_process(tmp_path: Path) -> None:
    pictures: list[dict[str, np.ndarray]] = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        write(folder, SHOWN)
        train(folder, count)
        pictures.append({path.name: np.asarray(Image.open(path), np.int16) for path in folder.glob("out/page*.png")})
    assert pictures[0].keys() == pictures[1].keys() == {"page.png", "page_1.png", "page_2.png"}
    assert all(np.abs(picture - pictures[1][name]).max() <= 1 for name, picture in pictures[0].items())  # rounding
    check_rows(tmp_path / "2", tmp_path / "1")


LONELY = LINE.replace("parallel: {kind: replicated, timeout: 60}", "")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (LONELY, (), "2 processes are to train 'line', and it does not say how they share a step"),
        (LINE.replace("timeout: 60", "buffers: local"), (), "with `buffers: local` every process has other statistics"),
        (LINE, ("--debug", "nan"), "`--debug nan` and `--replay` work with one process"),
    ],
    ids=["alone", "local", "debug"],
)
def test_what_processes_cannot_take_together_is_refused_before_they_start(
    workdir: Path, capsys: pytest.CaptureFixture[str], text: str, options: tuple[str, ...], said: str
) -> None:
    write(workdir, text)
    assert execute(["run", "line.yaml", "--nproc", "2", *options]) == 1
    assert f"error[GS257]: {said}" in capsys.readouterr().err
    assert not (workdir / "runs").exists()


@pytest.mark.parametrize(("count", "options"), [("8", ()), ("4", ("-s", "micro_batches=2"))], ids=["rows", "parts"])
def test_more_processes_than_a_batch_has_rows_are_refused_before_they_start(
    workdir: Path, capsys: pytest.CaptureFixture[str], count: str, options: tuple[str, ...]
) -> None:
    write(workdir)
    assert execute(["run", "line.yaml", "--nproc", count, *options]) == 1
    said = capsys.readouterr().err
    assert f"error[GS227]: data.train: a batch of 7 rows is too small for {count} processes" in said
    assert "on rank" not in said
    assert not (workdir / "runs").exists()

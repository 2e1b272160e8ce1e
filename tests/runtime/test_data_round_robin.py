"""Several training sets: whose turn it is, when an epoch ends, and a run that goes on in all of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphspec import SpecError, load
from runtime.cli import execute
from runtime.data import find_length, open_feed
from runtime.data.arrays import dataset_of

SPEC = """
graphspec: 1
name: turns
inputs: {x: {shape: [batch, 1]}}
models: {net: {layers: [{linear: 1}], optimizer: {1: {name: sgd, lr: 0.1}, 2: {name: adam, lr: 0.01}}}}
ops:
  y: {forward: net, inputs: x}
  first: {loss: mse, inputs: [y, 1.0], dataset: one}
  second: {loss: mse, inputs: [y, 2.0], dataset: two}
  step_first: {update: net, loss: first}
  step_second: {update: net, loss: second, every: 2}
data:
  train:
    one: {source: npz, path: one.npz, batch: 2, shuffle: true}
    two: {source: npz, path: two.npz, batch: 2, shuffle: true}
    MIX
run: {epochs: 3, log_every: 1, checkpoint: 4 steps}
outputs: [first, second]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the sets: three batches of numbers below 100, two of those above."""
    np.savez(tmp_path / "one.npz", x=np.arange(6, dtype="float32")[:, None] / 100)
    np.savez(tmp_path / "two.npz", x=np.arange(100, 104, dtype="float32")[:, None] / 100)
    return tmp_path


def feed_of(folder: Path, mix: str = "", seed: int = 3):
    """Return the batches of the sets."""
    return open_feed(load(SPEC.replace("MIX", mix)), "train", seed=seed, directory=folder)


def take(feed, count: int) -> list:
    """Return some batches as set and numbers; None where an epoch ends."""
    batches = (feed.next() for _ in range(count))
    return [batch and (dataset_of(batch), *(100 * batch["x"]).round().ravel().tolist()) for batch in batches]


def test_sets_take_turns_until_the_longest_has_ended(folder: Path) -> None:
    found = take(feed_of(folder), 14)
    assert [each and each[0] for each in found] == [*["one", "two"] * 3, None, *["one", "two"] * 3, None]
    assert sorted(n for each in found[:6:2] for n in each[1:]) == [0, 1, 2, 3, 4, 5]


def test_a_shorter_set_goes_on_in_the_next_epoch_where_it_was(folder: Path) -> None:
    seconds = [each[1:] for each in take(feed_of(folder), 14) if each and each[0] == "two"]
    passes = [sorted(seconds[n] + seconds[n + 1]) for n in (0, 2, 4)]
    assert passes == [[100, 101, 102, 103]] * 3


@pytest.mark.parametrize("mix", ["", "mix: {one: 0.7, two: 0.3}"])
@pytest.mark.parametrize("taken", [0, 1, 4, 6, 9])
def test_a_restored_feed_goes_on_in_all_sets(folder: Path, mix: str, taken: int) -> None:
    feed, other = feed_of(folder, mix), feed_of(folder, mix)
    take(feed, taken)
    other.restore(feed.state())
    assert take(feed, 12) == take(other, 12)


def test_a_mix_draws_as_often_as_it_says_and_the_same_again(folder: Path) -> None:
    names = [each[0] for each in take(feed_of(folder, "mix: [0.7, 0.3]"), 1200) if each]
    again = [each[0] for each in take(feed_of(folder, "mix: [7, 3]"), 1200) if each]
    assert names == again
    assert abs(names.count("one") / len(names) - 0.7) < 0.045  # three standard deviations of 1,000 draws


def test_an_epoch_is_as_long_as_it_is_told(folder: Path) -> None:
    for mix, expected in (("", 6), ("mix: [1, 1]", 5), ("mix: [1, 0]", 3)):
        found = take(feed_of(folder, mix), 20)
        assert found.index(None) == expected
        assert find_length(load(SPEC.replace("MIX", mix)), "train", folder) == feed_of(folder, mix).length == expected


def test_a_place_in_other_sets_is_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"GS252.*no position in the training sets one, two"):
        feed_of(folder).restore({"kind": "samples"})


def test_an_error_names_the_set(folder: Path) -> None:
    (folder / "two.npz").unlink()
    with pytest.raises(SpecError, match=r"data\.train\.two"):
        feed_of(folder)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mix", ["", "mix: {one: 2, two: 1}"])
def test_a_run_goes_on_exactly_in_sets_and_optimizers(folder: Path, mix: str) -> None:
    (folder / "spec.yaml").write_text(SPEC.replace("MIX", mix))
    spec = str(folder / "spec.yaml")
    for out, options in (("whole", []), ("parts", ["--steps", "8"]), ("parts", ["--resume", "--steps", "15"])):
        limit = ["--steps", "15"] if out == "whole" else []
        assert execute(["run", spec, "--out", str(folder / out), *limit, *options]) == 0
    one, other = (_read(folder / out / "metrics.jsonl") for out in ("whole", "parts"))
    assert one == other
    assert len(one) == 15


def _read(path: Path) -> list:
    """Return the rows of a log without their times."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "time"} for row in rows]

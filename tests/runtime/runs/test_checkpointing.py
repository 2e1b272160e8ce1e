"""A run written into a checkpoint and brought back from it, with its data and its loop."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec.diagnostics import SpecError
from runtime.checkpoints import Checkpoint, Store, read_checkpoint
from runtime.state import State
from runtime.train.checkpointing import Keeper, find_best, find_state
from runtime.train.loop import BestMetric, RunState


class Steps:
    """A step of one weight."""

    def __init__(self):
        self.kept = State(arrays={"models.net.weight": np.array([1.5])}, counters={"steps": {"train": 3}})

    def state(self, *, whole=True):
        return self.kept

    def restore(self, state):
        self.kept = state

    def numpy(self, value):
        return np.asarray(value)


class Places:
    """Data that keep an array and a name that could be taken for one."""

    def __init__(self):
        self.tree = {"index": 4, "buffer": np.arange(6.0), "odd": {"array": "models.net.weight"}}

    def state(self):
        return self.tree

    def restore(self, tree):
        self.tree = tree


@pytest.fixture
def keeper(tmp_path):
    return Keeper(step=Steps(), feed=Places(), store=Store(tmp_path, 2), origin={"name": "net", "seed": 7})


def test_step_data_and_loop_come_back(keeper, tmp_path):
    keeper.save(RunState(made=3, evaluated=2, latest={"loss": np.float32(0.1), "scores": np.zeros(3), "old": 0.5}))
    keeper.step.kept, keeper.feed.tree = None, None
    state = RunState()
    keeper.restore(read_checkpoint(tmp_path / "step-3"), state)
    assert keeper.step.kept.arrays["models.net.weight"] == 1.5
    assert keeper.step.kept.counters == {"steps": {"train": 3}}
    assert (keeper.feed.tree["buffer"] == np.arange(6.0)).all()
    assert keeper.feed.tree["odd"] == {"array": "models.net.weight"}
    assert (state.made, state.evaluated, state.latest) == (3, 2, {"loss": float(np.float32(0.1)), "old": 0.5})


def test_the_origin_is_that_of_the_run_and_the_step(keeper, tmp_path):
    keeper.save(RunState(made=3))
    assert read_checkpoint(tmp_path / "step-3").sections["origin"] == {"name": "net", "seed": 7, "step": 3}


def test_the_state_of_the_step_is_without_the_arrays_of_the_data(keeper, tmp_path):
    keeper.save(RunState(made=3))
    found = read_checkpoint(tmp_path / "step-3")
    assert sorted(found.arrays) == ["data.buffer", "models.net.weight"]
    assert list(find_state(found).arrays) == ["models.net.weight"]


def test_the_newest_and_the_best_are_kept(keeper):
    run = RunState(best=BestMetric(metric="loss", mode="min"))
    for run.made, loss in enumerate([5.0, 1.0, 3.0, 4.0, 2.0], start=1):
        run.best = run.best.update(run.made, {"loss": loss})
        keeper.save(run)
    assert keeper.store.steps() == (2, 4, 5)
    assert find_best(read_checkpoint(keeper.store.newest())) == 2


def test_a_checkpoint_of_an_interruption_goes_when_the_next_one_is_there(keeper):
    run, seen = RunState(), []
    for run.made, planned in enumerate([True, True, False, False, True, False], start=1):
        keeper.save(run, planned=planned)
        seen.append(keeper.store.steps())
    assert seen == [(1,), (1, 2), (2, 3), (2, 4), (2, 5), (5, 6)]


def test_what_a_kill_left_beside_the_newest_is_removed_when_the_run_goes_on(keeper, monkeypatch):
    run = RunState()
    for run.made, planned in enumerate([True, True, False, True], start=1):
        with monkeypatch.context() as patch:
            if run.made == 4:  # killed before it removes what is not kept
                patch.setattr(Keeper, "prune", lambda *_: None)
            keeper.save(run, planned=planned)
    assert keeper.store.steps() == (2, 3, 4)
    again = RunState()
    keeper.restore(read_checkpoint(keeper.store.newest()), again)
    keeper.prune(again)
    assert keeper.store.steps() == (2, 4)


def test_a_checkpoint_of_an_older_version_counts_all_that_are_there(keeper):
    for made in (1, 2):
        keeper.save(RunState(made=made, planned=(made - 1,)))
    found = read_checkpoint(keeper.store.newest())
    loop = {name: value for name, value in found.sections["loop"].items() if name not in ("planned", "rows")}
    run = RunState()
    keeper.restore(Checkpoint(arrays=found.arrays, sections={**found.sections, "loop": loop}), run)
    assert (run.planned, run.rows) == ((1, 2), None)


@pytest.mark.parametrize("loop", [None, {}, {"best": None}, {"best": {"step": None}}])
def test_a_run_that_keeps_no_best_has_none(loop):
    assert find_best(Checkpoint(arrays={}, sections={"loop": loop})) is None


@pytest.mark.parametrize(
    ("lacking", "told"),
    [("counters", "has no section 'counters'"), ("loop", "has no section 'loop'")],
)
def test_a_checkpoint_without_a_part_is_told(keeper, lacking, told):
    keeper.save(RunState(made=3))
    found = read_checkpoint(keeper.store.newest())
    sections = {name: section for name, section in found.sections.items() if name != lacking}
    with pytest.raises(SpecError, match=f"GS241.*{told}"):
        keeper.restore(Checkpoint(arrays=found.arrays, sections=sections), RunState())


def test_a_loop_that_lacks_something_is_told(keeper):
    keeper.save(RunState(made=3))
    found = read_checkpoint(keeper.store.newest())
    sections = {**found.sections, "loop": {"step": 3}}
    with pytest.raises(SpecError, match=r"GS241.*does not say how far its run was"):
        keeper.restore(Checkpoint(arrays=found.arrays, sections=sections), RunState())

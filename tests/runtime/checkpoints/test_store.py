"""The checkpoints of a run: sorted by number, the newest and the best kept, leftovers removed."""

from __future__ import annotations

import os
import shutil

import pytest

from runtime.checkpoints import Store, read_checkpoint
from tests.runtime.checkpoints.contents import content_at, same


@pytest.fixture
def store(tmp_path):
    """Return a store of four checkpoints that keeps two."""
    made = Store(tmp_path / "checkpoints", keep=2)
    for step in (2, 9, 100, 10):
        made.save(content_at(step), step)
    return made


def names(store):
    return sorted(os.listdir(store.folder))


def test_steps_are_sorted_by_number(store):
    assert store.steps() == (2, 9, 10, 100)
    assert store.newest() == store.path(100) == store.folder / "step-100"


def test_a_new_store_is_empty(tmp_path):
    store = Store(tmp_path / "checkpoints", keep=1)
    assert (store.steps(), store.newest()) == ((), None)
    store.prune()
    store.clean()
    assert os.listdir(tmp_path) == []


def test_names_that_are_none_of_ours_are_no_checkpoints(store):
    for name in ("step-007", "step-", "step-1.bak", "step--1", "step-\u0663", "best", ".step-3-0123abcd.new"):
        (store.folder / name).mkdir()
    (store.folder / "step-3").write_text("a file")
    assert store.steps() == (2, 9, 10, 100)


def test_save_returns_where_it_is(store):
    assert same(read_checkpoint(store.save(content_at(7), 7)), content_at(7))


def test_prune_keeps_the_newest(store):
    store.prune()
    assert names(store) == ["step-10", "step-100"]


def test_prune_keeps_the_best_besides(store):
    store.prune(best=2)
    assert names(store) == ["step-10", "step-100", "step-2"]
    store.prune(best=10)
    assert names(store) == ["step-10", "step-100"]


@pytest.mark.parametrize(("counted", "left"), [((), [100]), ((9, 100), [9, 100]), ((2, 9, 10), [10, 100])])
def test_prune_counts_only_some_besides_the_newest(store, counted, left):
    store.prune(counted=counted)
    assert store.steps() == tuple(left)


def test_a_store_keeps_at_least_one(tmp_path):
    with pytest.raises(ValueError, match="at least 1"):
        Store(tmp_path, keep=0)


def test_clean_removes_leftovers_of_ours_only(store, tmp_path):
    (tmp_path / "mine").mkdir()
    for name in (".step-3-0123abcd.new", ".step-9-0123abcd.old", ".step-4-0123abcd.gone", ".step-5-tmp", ".cache"):
        (store.folder / name).mkdir()
        (store.folder / name / "file").write_text("")
    (store.folder / ".step-6-0123abcd.new").symlink_to(tmp_path / "mine")
    (store.folder / ".step-8-0123abcd.new").write_text("a file")
    store.clean()
    others = {".step-5-tmp", ".cache", ".step-6-0123abcd.new", ".step-8-0123abcd.new"}
    assert set(names(store)) == {"step-2", "step-9", "step-10", "step-100"} | others
    assert (tmp_path / "mine").is_dir()


def test_clean_brings_back_what_had_stepped_aside(store):
    store.path(100).rename(store.folder / ".step-100-0123abcd.old")
    shutil.copytree(store.path(10), store.folder / ".step-100-0123abcd.new")
    store.clean()
    assert names(store) == ["step-10", "step-100", "step-2", "step-9"]
    assert same(read_checkpoint(store.path(100)), content_at(100))

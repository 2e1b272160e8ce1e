"""The folder of a run: a new one each time, and never one of another run."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphspec.diagnostics import SpecError
from runtime.folder import make_folder


def test_runs_of_one_name_are_numbered(workdir):
    made = [str(make_folder("gan", None)) for _ in range(3)]
    assert made == ["runs/gan", "runs/gan-2", "runs/gan-3"]
    assert all(Path(name).is_dir() for name in made)


@pytest.mark.parametrize(("name", "folder"), [("a b/c", "runs/a-b-c"), ("..", "runs/run"), ("émile", "runs/émile")])
def test_a_name_becomes_a_folder_below_runs(workdir, name, folder):
    assert str(make_folder(name, None)) == folder


def test_the_folder_that_was_asked_for_is_made_with_its_parents(workdir):
    assert make_folder("gan", Path("a/b")).is_dir()


def test_an_empty_or_foreign_folder_may_be_used(workdir):
    Path("notes").mkdir()
    Path("notes/readme.txt").write_text("mine")
    assert make_folder("gan", Path("notes")) == Path("notes")


@pytest.mark.parametrize("trace", ["run.json", "metrics.jsonl", "metrics.csv", "checkpoints"])
def test_a_folder_of_another_run_is_refused(workdir, trace):
    Path("old").mkdir()
    Path("old", trace).write_text("")
    with pytest.raises(SpecError, match=rf"GS231.*'old' already holds a run \({trace}\)"):
        make_folder("gan", Path("old"))


def test_a_file_in_the_way_is_told(workdir):
    Path("taken").write_text("")
    with pytest.raises(SpecError, match=r"GS234.*cannot write 'taken': file exists"):
        make_folder("gan", Path("taken"))

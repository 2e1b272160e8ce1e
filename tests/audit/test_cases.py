"""The labelled scripts are what their labels say: they end well or with their exception, and the labels can be read."""

from __future__ import annotations

import builtins
import re
import runpy
import time
import traceback
import warnings
from pathlib import Path

import pytest
import torch

from tests.audit.labels import CASES, LEVELS, NEAR, Label, read_label, scripts

README = (CASES / "README.md").read_text(encoding="utf-8")
LONGEST = 55


def run(path: Path) -> None:
    """Run a script as `python PATH` would, and leave the random state of the tests alone."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = runpy.run_path(str(path), run_name="__main__")
    if torch.distributed in kept.values():
        # A process group that is destroyed joins its thread while it holds the GIL, which the thread may need to drop
        # its last message (PyTorch 2.13): let it do that first.
        time.sleep(0.5)


def test_there_are_enough_scripts():
    assert len(scripts("h")) >= 70
    assert len(scripts("sound_")) >= 30
    assert {*CASES.glob("*.py")} == {*scripts("h"), *scripts("sound_")}


def test_every_bug_is_labelled_with_a_cause_and_level_of_the_readme():
    causes = {*re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE)} - {*LEVELS}
    labels = [label for label in map(read_label, scripts("h")) if label is not None]
    assert len(labels) == len(scripts("h"))
    assert {label.cause for label in labels} == causes
    assert {label.level for label in labels} == {*LEVELS}


def test_the_readme_names_the_causes_that_count_for_each_other():
    _, _, text = README.partition("Some causes are two views of one mistake.")
    text, _, _ = text.partition("\n\n")
    groups = [{*re.findall(r"`([a-z-]+)`", group)} for group in text.partition(":")[2].split(";")]
    assert groups == [*NEAR]


def test_a_finding_is_the_bug_if_its_cause_and_one_of_its_lines_are():
    label = Label(cause="leftover-grad", level="error", lines=(3, 7), raises=None, raised_at=None)
    assert label.is_found("leftover-grad", {7, 9})
    assert label.is_found("leaked-grad", {3})
    assert not label.is_found("leftover-grad", {4})
    assert not label.is_found("stale-read", {3})


def test_no_sound_script_is_labelled():
    assert [path.name for path in scripts("sound_") if read_label(path) is not None] == []


def test_the_kinds_in_the_readme_are_those_of_the_scripts():
    kinds = sorted({path.name.partition("_")[0] for path in scripts("h")})
    assert sorted(re.findall(r"\| (h\d\d) \|", README)) == kinds


def test_the_first_line_of_a_bug_names_where_it_was_published():
    named = re.compile(r"(?:\w+#\d+|H\d\d)[^;]*\.\"\"\"$")
    firsts = {path.name: path.read_text(encoding="utf-8").splitlines()[0] for path in scripts("h")}
    assert [name for name, first in firsts.items() if not named.search(first)] == []


def test_no_script_is_longer_than_a_screen():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in CASES.glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_a_label_that_contradicts_another_is_an_error(tmp_path: Path):
    path = tmp_path / "case.py"
    path.write_text("a = 1  # expect: stale-read error\nb = 1  # expect: leaked-grad error\n", encoding="utf-8")
    with pytest.raises(ValueError, match="one bug"):
        read_label(path)
    path.write_text("a = 1  # expect: stale-read\n", encoding="utf-8")
    with pytest.raises(ValueError, match="1: a label that cannot be read"):
        read_label(path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("path", [*scripts("h"), *scripts("sound_")], ids=lambda path: path.stem)
def test_a_script_ends_as_its_label_says(path: Path, capsys: pytest.CaptureFixture[str]):
    label = read_label(path)
    if label is None or label.raises is None:
        run(path)
        return
    with pytest.raises(getattr(builtins, label.raises)) as caught:
        run(path)
    places = [frame for frame in traceback.extract_tb(caught.tb) if frame.filename == str(path)]
    assert places[-1].lineno == label.raised_at

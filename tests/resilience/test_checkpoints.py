"""Checkpoints that were removed, cut, forged, or belong to another spec: nothing is trained from wrong numbers."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.resilience.conditions import differences, go_on, make, refuse, steps

pytestmark = [pytest.mark.xdist_group("conditions"), pytest.mark.needs("torch")]


@pytest.fixture
def stopped(whole, tmp_path):
    """Return a folder with the run that made 24 steps, as it was after 20."""
    shutil.copytree(whole, make(tmp_path) / "out")
    assert steps(tmp_path / "out") == (20, 24)
    return tmp_path


def cut(place):
    os.truncate(place / "state.safetensors", 1000)


def flip(place):
    content = bytearray((place / "state.safetensors").read_bytes())
    content[-5] ^= 1
    (place / "state.safetensors").write_bytes(content)


def edit(place):
    text = (place / "manifest.json").read_text()
    (place / "manifest.json").write_text(text.replace('"step": 24', '"step": 23'))


DAMAGES = {
    cut: "state.safetensors has 1,000 bytes of ",
    flip: "state.safetensors does not agree with its checksum",
    edit: "manifest.json: its content does not agree with its checksum",
    lambda place: (place / "state.safetensors").unlink(): "it has no state.safetensors",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", DAMAGES, ids=list(DAMAGES.values()))
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_named(damage, stopped):
    damage(stopped / "out" / "checkpoints" / "step-24")
    before = listing(stopped / "out")
    told = refuse(stopped, "--resume")
    assert f"error[GS241]: the checkpoint 'out/checkpoints/step-24' is damaged: {DAMAGES[damage]}" in told
    assert "= help: remove that folder and resume from step-20" in told
    assert listing(stopped / "out") == before


def listing(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_without_the_damaged_checkpoint_the_run_goes_on_from_the_one_before_it(whole, stopped):
    shutil.rmtree(stopped / "out" / "checkpoints" / "step-24")
    assert "resuming after step 20" in go_on(stopped)
    assert differences(whole, stopped / "out") == []


def test_without_any_checkpoint_the_run_begins_anew_in_its_folder(whole, stopped):
    shutil.rmtree(stopped / "out" / "checkpoints")
    told = go_on(stopped)
    assert "resuming in out/" in told
    assert "24 steps in" in told
    assert differences(whole, stopped / "out") == []


def test_a_checkpoint_of_another_step_is_refused_with_every_change(whole, stopped):
    before = listing(stopped / "out")
    told = refuse(stopped, "--resume", "-s", "ops.loss.loss=mse", "-s", "models.net.optimizer=sgd")
    assert "error[GS245]: the run in 'out' cannot be resumed" in told
    assert "= note: ops.loss.loss: cross_entropy -> mse" in told
    assert "models.net.optimizer" in told
    assert listing(stopped / "out") == before


def test_weights_that_do_not_fit_are_refused_by_name_and_nothing_is_changed(whole, stopped):
    shutil.rmtree(stopped / "out" / "checkpoints" / "step-24")
    before = listing(stopped / "out")
    told = refuse(stopped, "--resume", "-s", "models.net.args.width=9")
    assert "error[GS264]: " in told
    assert "models.net.0.weight is [8, 4], expected [9, 4]" in told
    assert listing(stopped / "out") == before
    go_on(stopped)
    assert differences(whole, stopped / "out") == []


def test_a_record_that_was_edited_is_told(stopped):
    record = stopped / "out" / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "seed": 5}))
    assert "error[GS243]: cannot read the record 'out/run.json': its content" in refuse(stopped, "--resume")


def test_metrics_that_were_edited_are_told_and_begun_anew_when_moved_away(whole, stopped):
    shutil.rmtree(stopped / "out" / "checkpoints" / "step-24")
    path = stopped / "out" / "metrics.csv"
    path.write_text(path.read_text().replace("4,", "four,", 1))
    before = listing(stopped / "out")
    told = refuse(stopped, "--resume")
    assert "error[GS247]: 'out/metrics.csv' is not a metrics file: " in told
    assert listing(stopped / "out") == before
    path.unlink()
    go_on(stopped)
    assert differences(whole, stopped / "out") == []

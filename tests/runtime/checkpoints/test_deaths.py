"""A process that dies at any moment of its writing: what has the name of a checkpoint is whole afterwards."""

from __future__ import annotations

import os

import pytest

from tests.runtime.checkpoints.processes import run_scene

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")


def test_thirty_kills_at_random_moments_leave_whole_checkpoints(tmp_path):
    newest, met = map(int, run_scene("kill_at_random", tmp_path, "deaths").split())
    assert newest > 0, "no checkpoint was finished: the test says nothing"
    assert met > 0, "no kill met a half written one: the test says nothing"


def test_a_death_before_any_event_of_writing_leaves_whole_checkpoints(tmp_path):
    events, met = map(int, run_scene("die_everywhere", tmp_path, "deaths").split())
    assert events > 15
    assert met > 5

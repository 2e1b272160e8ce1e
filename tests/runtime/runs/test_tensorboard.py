"""Events for TensorBoard, read back record by record."""

from __future__ import annotations

import math
import struct
import sys
import time

import pytest
from tensorboardX.proto.event_pb2 import Event

from graphspec.diagnostics import SpecError
from runtime.train.logs import Row, open_logs


def read_events(folder):
    """Return the events of all files of a folder: records of a length, its checksum, the event and its checksum."""
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            yield Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]


def row(step, **values):
    return Row(step=step, seconds=1.0, values=values)


def test_every_finite_value_of_a_row_is_an_event_at_its_step(tmp_path):
    (log,) = open_logs(tmp_path, ["tensorboard"])
    log.add(row(10, loss=0.5, accuracy=0.25))
    log.add(row(20, loss=math.nan, accuracy=0.75))
    log.close()
    found = [(e.step, v.tag, v.simple_value) for e in read_events(tmp_path / "tensorboard") for v in e.summary.value]
    assert found == [(10, "loss", 0.5), (10, "accuracy", 0.25), (20, "accuracy", 0.75)]


def test_a_run_that_goes_on_takes_back_the_steps_after_its_checkpoint(tmp_path):
    (log,) = open_logs(tmp_path, ["tensorboard"], [row(10, loss=0.5)])
    log.add(row(20, loss=0.25))
    log.close()
    events = list(read_events(tmp_path / "tensorboard"))
    starts = [e.step for e in events if e.HasField("session_log")]
    assert starts == [11]


def test_the_file_of_a_run_that_goes_on_comes_last_where_the_clock_was_set_back(tmp_path, monkeypatch):
    for now in (5_000, 4_000, 4_500):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        open_logs(tmp_path, ["tensorboard"])
    names = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert [int(name.split(".")[3]) for name in names] == [5_000, 5_001, 5_002]


def test_a_missing_package_is_told_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(SpecError, match="needs the package tensorboardX"):
        open_logs(tmp_path, ["tensorboard"])

"""The logged rows of runs that were killed: none is missing, none is there twice, in whatever files they are kept."""

from __future__ import annotations

import struct
from functools import partial

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from tests.resilience.conditions import differences, go_on, make, read_rows, refuse, strike_in_write

pytestmark = [pytest.mark.xdist_group("conditions"), pytest.mark.needs("torch")]

KILLED = -9


def events(folder):
    """Return (step, name, value) as TensorBoard shows them: a start hides what was written before of its steps."""
    shown = []
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event, content = Event.FromString(content[12 : 12 + length]), content[16 + length :]
            if event.session_log.status == SessionLog.START:
                shown = [each for each in shown if each[0] < event.step]
            shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return shown


def expected(out):
    """Return what TensorBoard should show of a run's rows, rounded as its events are."""
    single = struct.Struct("<f")
    rows = [(row["step"], {n: v for n, v in row.items() if n not in ("step", "time")}) for row in read_rows(out)]
    return [
        (step, name, single.unpack(single.pack(value))[0]) for step, values in rows for name, value in values.items()
    ]


@pytest.mark.long
@pytest.mark.parametrize("logs", ["[jsonl, csv, tensorboard]", "[tensorboard]"])
def test_events_of_a_run_killed_three_times_go_on_where_its_checkpoints_stand(logs, whole, tmp_path):
    make(tmp_path, ("log_every: 4", f"log: {logs}\n  log_every: 4"))
    for number, sample in enumerate((11, 66, 41)):  # before the first checkpoint, after step 13, after step 18
        refuse(tmp_path, *["--resume"][:number], code=KILLED, trouble=f"train {sample} SIGKILL")
    go_on(tmp_path)
    assert events(tmp_path / "out" / "tensorboard") == expected(whole)


def test_a_run_killed_within_two_checkpoint_writes_logs_every_row_once(whole, tmp_path):
    make(tmp_path)
    refuse(tmp_path, code=KILLED, before=partial(strike_in_write, 14, "SIGKILL"))
    refuse(tmp_path, "--resume", code=KILLED, before=partial(strike_in_write, 5, "SIGKILL"))
    go_on(tmp_path)
    assert differences(whole, tmp_path / "out") == []


def test_one_file_of_metrics_is_enough_to_go_on(whole, tmp_path):
    make(tmp_path, ("log_every: 4", "log: [jsonl]\n  log_every: 4"))
    refuse(tmp_path, code=KILLED, trouble="train 101 SIGKILL")
    go_on(tmp_path)
    assert sorted(path.name for path in (tmp_path / "out").glob("metrics.*")) == ["metrics.jsonl"]
    assert [{**row, "time": 0} for row in read_rows(tmp_path / "out")] == [
        {**row, "time": 0} for row in read_rows(whole)
    ]


def test_a_file_of_metrics_that_is_asked_for_later_is_made_from_the_other(whole, tmp_path):
    make(tmp_path, ("log_every: 4", "log: [csv]\n  log_every: 4"))
    refuse(tmp_path, code=KILLED, trouble="train 101 SIGKILL")
    go_on(tmp_path, "-s", "run.log=[jsonl, csv]")
    assert differences(whole, tmp_path / "out") == []

"""Metrics files: what they hold, also while a run goes on."""

from __future__ import annotations

import csv
import json
import math

import pytest

from graphspec.diagnostics import SpecError
from runtime.train.logs import Row, open_logs, read_rows


def rows(*values):
    return [Row(step=10 * number, seconds=0.5 * number, values=each) for number, each in enumerate(values, start=1)]


def write(folder, name, *values):
    (log,) = open_logs(folder, [name])
    for row in rows(*values):
        log.add(row)
    return (folder / f"metrics.{name}").read_text()


def test_each_line_of_jsonl_is_an_object(tmp_path):
    text = write(tmp_path, "jsonl", {"loss": 0.1}, {"loss": 0.25, "more": 3.0})
    read = [json.loads(line) for line in text.splitlines()]
    assert read == [{"step": 10, "time": 0.5, "loss": 0.1}, {"step": 20, "time": 1.0, "loss": 0.25, "more": 3.0}]


def test_jsonl_stays_json_where_a_loss_is_not_finite(tmp_path):
    text = write(tmp_path, "jsonl", {"a": math.nan, "b": math.inf, "c": 1.0})

    def refuse(token):
        raise AssertionError(token)

    assert json.loads(text, parse_constant=refuse) == {"step": 10, "time": 0.5, "a": None, "b": None, "c": 1.0}


def test_csv_is_a_table(tmp_path):
    text = write(tmp_path, "csv", {"loss": 0.1, "acc": 0.5}, {"loss": 0.25, "acc": math.nan})
    assert text == "step,time,loss,acc\n10,0.5,0.1,0.5\n20,1.0,0.25,nan\n"


def test_a_column_that_comes_late_is_added_to_the_whole_table(tmp_path):
    text = write(tmp_path, "csv", {"loss": 1.0}, {"loss": 2.0, "actor": 9.0}, {"loss": 3.0})
    assert list(csv.reader(text.splitlines())) == [
        ["step", "time", "loss", "actor"],
        ["10", "0.5", "1.0", ""],
        ["20", "1.0", "2.0", "9.0"],
        ["30", "1.5", "3.0", ""],
    ]


def test_numbers_are_kept_to_the_last_bit(tmp_path):
    value = 0.1 + 0.2
    assert json.loads(write(tmp_path, "jsonl", {"loss": value}))["loss"] == value
    assert float(write(tmp_path, "csv", {"loss": value}).splitlines()[1].split(",")[2]) == value


def test_a_line_is_in_the_file_as_soon_as_it_is_added(tmp_path):
    (log,) = open_logs(tmp_path, ["jsonl"])
    for count, row in enumerate(rows({"loss": 1.0}, {"loss": 2.0}), start=1):
        log.add(row)
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == count


def test_a_run_that_goes_on_keeps_infinities_and_drops_later_rows(tmp_path):
    logs = open_logs(tmp_path, ["jsonl", "csv"])
    for row in rows({"loss": math.inf}, {"loss": 0.1, "late": -math.inf}, {"loss": 9.0}):
        for log in logs:
            log.add(row)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = read_rows(tmp_path, 20)
    open_logs(tmp_path, ["jsonl", "csv"], kept, 20)
    assert [row.values for row in kept] == [{"loss": math.inf}, {"loss": 0.1, "late": -math.inf}]
    for name, text in before.items():
        assert (tmp_path / name).read_text() == text[: text.rindex("\n", 0, -1) + 1]


def test_a_run_that_goes_on_writes_both_files_as_they_were(tmp_path):
    logs = open_logs(tmp_path, ["jsonl", "csv"])
    for row in rows({"a": 1.0}, {"late": math.inf, "a": 2.0}, {"b": 0.1, "late": 3.0}):
        for log in logs:
            log.add(row)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    open_logs(tmp_path, ["jsonl", "csv"], read_rows(tmp_path, 30), 30)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("lacking", ["", "metrics.jsonl", "metrics.csv"])
def test_only_as_many_rows_as_a_checkpoint_has_seen_are_read(tmp_path, lacking):
    for name in ("jsonl", "csv"):
        write(tmp_path, name, {"loss": 1.0}, {"eval/loss": 2.0}, {"loss": 3.0})
    if lacking:
        (tmp_path / lacking).unlink()
    assert [row.values for row in read_rows(tmp_path, 30, 2)] == [{"loss": 1.0}, {"eval/loss": 2.0}]


def test_files_that_do_not_agree_are_not_mixed(tmp_path):
    write(tmp_path, "jsonl", {"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0})
    write(tmp_path, "csv", {"other": 1.0}, {"loss": 2.0})
    assert [row.values for row in read_rows(tmp_path, 30)] == [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}]


@pytest.mark.parametrize("shorter", ["jsonl", "csv"])
def test_the_file_that_has_more_rows_is_taken(tmp_path, shorter):
    (log,) = open_logs(tmp_path, [shorter])
    log.add(rows({"loss": 1.0})[0])
    write(tmp_path, "csv" if shorter == "jsonl" else "jsonl", {"loss": 1.0}, {"loss": 2.0})
    assert [row.step for row in read_rows(tmp_path, 30)] == [10, 20]


@pytest.mark.parametrize(
    "line", ["[1]", '{"time": 1.0}', '{"step": null, "time": 1}', '{"step": 1, "time": "x"}', "\0"]
)
def test_a_line_that_is_no_row_is_told(tmp_path, line):
    text = write(tmp_path, "jsonl", {"loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text(f"{text}{line}\n{text}")
    with pytest.raises(SpecError, match=r"GS247.*metrics.jsonl' is not a metrics file: row 2: "):
        read_rows(tmp_path, 30)


def test_a_last_line_that_is_cut_is_not_there(tmp_path):
    text = write(tmp_path, "jsonl", {"loss": 1.0}, {"loss": 2.0})
    (tmp_path / "metrics.jsonl").write_text(text[:-4])
    assert [row.step for row in read_rows(tmp_path, 30)] == [10]

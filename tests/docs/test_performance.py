"""The tables of docs/performance.md are those of the record, and benchmarks that are run change no more than theirs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.figures import Row
from benchmarks.performance.__main__ import ROOT, Session, main
from benchmarks.performance.cells import Rows, head, line, number, spread
from benchmarks.performance.floors import STARTS, write_floors
from benchmarks.performance.goals import SLOWER
from benchmarks.performance.page import MARKED, PAGE, fill, mark
from benchmarks.performance.record import RESULTS, Record, read, store
from benchmarks.performance.suite import BENCHMARKS, Benchmark
from benchmarks.performance.tables import TABLES

SMALL = replace(
    BENCHMARKS["compile-coupled"], words='benchmarks.compile_time BEFORE . --ops 20 --shape "coupled models"'
)
"""A benchmark that takes a second."""
FAILING = Benchmark(measures="nothing", words="json.tool --nonsense", needs=())


@dataclass(frozen=True, kw_only=True)
class Interrupted(Session):
    """A session whose benchmarks find what is given, one after another, and that is interrupted afterwards."""

    found: list[Record]

    def measure(self, benchmark: Benchmark, python: str, commit: str) -> Record | None:
        """Return what the next benchmark has found."""
        if not self.found:
            raise KeyboardInterrupt
        return self.found.pop(0)


@pytest.fixture
def copy(tmp_path: Path) -> Session:
    """Return a session that writes a copy of the record and of the page, with this tree as the older one."""
    folder, page = tmp_path / "results", tmp_path / "performance.md"
    shutil.copytree(RESULTS, folder)
    shutil.copy(PAGE, page)
    return Session(before=ROOT, rounds=1, folder=folder, page=page)


def find_changes(copy: Session) -> set[str]:
    """Return the benchmarks whose record in a copy differs from that of the repository."""
    names = {path.stem for path in copy.folder.glob("*.json")} | {*BENCHMARKS}
    return {name for name in names if read(copy.folder, name) != read(RESULTS, name)}


def find_tables(page: Path) -> dict[str, str]:
    """Return the tables of a page."""
    return {found["name"]: found["table"] for found in MARKED.finditer(page.read_text(encoding="utf-8"))}


def test_the_page_has_the_tables_of_the_record() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tables = {name: table.render() for name, table in TABLES.items()}
    assert fill(text, tables) == text, "run `python -m benchmarks.performance --render`"


def test_every_benchmark_has_a_record_and_a_table_and_every_table_a_benchmark() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == {*BENCHMARKS}
    assert {name for table in TABLES.values() for name in table.reads} == {*BENCHMARKS}
    assert all(table.reads for table in TABLES.values())
    assert find_tables(PAGE).keys() == TABLES.keys()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_record_says_where_it_is_from_and_is_written_as_it_is_read(name: str, tmp_path: Path) -> None:
    record = read(RESULTS, name)
    assert record.command.startswith(f"python -m {BENCHMARKS[name].words}")
    assert record.date
    assert record.commit
    assert record.machine["python"]
    assert (record.before is not None) == BENCHMARKS[name].compares
    store(record, tmp_path, name)
    assert (tmp_path / f"{name}.json").read_bytes() == (RESULTS / f"{name}.json").read_bytes()


def test_only_what_is_between_markers_is_written() -> None:
    before, between, after = "# Page\n\n| by hand |\n|---|\n\n", "\n\nBetween `two` \\1 tables.\n\n", "\n\nThe end.\n"
    old, new = (f"{head('n')}\n{line(cell)}" for cell in ("1", "2"))
    text = f"{before}{mark('one', old)}{between}{mark('two', old)}{after}"
    changed = f"{before}{mark('one', new)}{between}{mark('two', old)}{after}"
    assert fill(text, {"one": new, "two": old}) == changed


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three"), ("one", "three")])
def test_a_page_with_other_tables_is_refused(names: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="the page has the tables one, two, and the record "):
        fill(f"{mark('one', '')}\n{mark('two', '')}\n", dict.fromkeys(names, ""))


FLOOR_ROWS: Mapping[str, Sequence[Row]] = {
    "steps": [{"step": step, "variant": "floor", "of expert": [0.875, 0.8, 0.9]} for step in SLOWER],
    "starts": [{"program": program, "now": 0.164} for program in dict.fromkeys(floor for *_, floor in STARTS.values())],
}
"""Rows of floors, by benchmark."""
FLOORS = {"floor", *(floor for *_, floor in STARTS.values())}
"""The variant and the programs of such rows."""
FLOOR_FIELDS: Mapping[str, Row] = {
    "compile-1000": {"load floor": 6.5, "floor": 33.2},
    "captured": {"floor": 0.444},
    "loop": {"by hand of bare": [1.02, 1.01, 1.04]},
}
"""Floors that stand in the row of what they are the floor of."""


def list_floors(figures: Mapping[str, Rows]) -> list[str]:
    """Return the third cell of each line of the table of floors."""
    return [row.split("|")[3].strip() for row in list(write_floors(figures))[1:]]


def test_the_cell_of_a_floor_is_empty_until_it_is_measured() -> None:
    older: dict[str, Rows] = {}
    newer: dict[str, Rows] = {}
    for name in TABLES["floors"].reads:
        rows, fields = FLOOR_ROWS.get(name, ()), FLOOR_FIELDS.get(name, {})
        kept = [row for row in read(RESULTS, name).figures if not FLOORS & {row.get("variant"), row.get("program")}]
        older[name] = [{key: value for key, value in row.items() if key not in fields} for row in kept]
        newer[name] = [*({**row, **fields} for row in kept), *rows]
    assert list_floors(older) == [""] * 11
    by_hand = "1.02 (1.01 - 1.04)"
    assert list_floors(newer) == [*["0.88"] * 2, "7, 7, 7", "33, 33, 33", *["0.16"] * 4, "0.44", *[by_hand] * 2]


def test_a_benchmark_that_fails_costs_no_figures(copy: Session, capfd: pytest.CaptureFixture[str]) -> None:
    assert copy.run({"memory": FAILING, "compile-coupled": SMALL}) == ["memory"]
    assert find_changes(copy) == {"compile-coupled"}
    shown = capfd.readouterr().out
    assert "[1/2] memory: python -m json.tool --nonsense\nmemory: left as it was: it has failed\n" in shown
    assert "[2/2] compile-coupled: python -m benchmarks.compile_time BEFORE . --ops 20 " in shown


def test_an_interrupted_run_keeps_what_it_has(copy: Session) -> None:
    found = replace(
        read(RESULTS, "loop"), date="2000-01-01", figures=[{**each} for each in read(RESULTS, "loop").figures]
    )
    found.figures[0]["of bare"][:] = [9.87]
    session = Interrupted(before=ROOT, folder=copy.folder, page=copy.page, found=[found])
    with pytest.raises(KeyboardInterrupt):
        session.run({"loop": replace(BENCHMARKS["loop"], needs=()), "memory": replace(BENCHMARKS["memory"], needs=())})
    assert find_changes(copy) == {"loop"}
    assert f" | 9.87 | {number(found.figures[1]['of bare'][0])} | " in find_tables(copy.page)["goals"]


def test_what_cannot_run_here_is_left_as_it_was(copy: Session, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = Benchmark(measures="nothing", words="json.tool", needs=("json", "no_such_module"))
    assert copy.run({"memory": lacking}) == []
    assert replace(copy, before=None).run({"loop": SMALL}) == []
    assert find_changes(copy) == set()
    assert copy.page.read_bytes() == PAGE.read_bytes()
    shown = capsys.readouterr().out
    assert "memory: left as it was: no_such_module: not installed\n" in shown
    assert "loop: left as it was: it measures an older tree, too, which --before names\n" in shown


def test_peers_alone_run_with_the_interpreter_that_has_them(copy: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session = replace(copy, peers_python="no_such_python")
    assert session.run({"peers": FAILING, "memory": FAILING}) == ["memory"]
    assert "peers: left as it was: [Errno 2] No such file or directory: 'no_such_python'\n" in capsys.readouterr().out


def test_a_benchmark_is_measured_stored_and_shown(copy: Session) -> None:
    assert copy.run({"compile-coupled": SMALL}) == []
    record = read(copy.folder, "compile-coupled")
    assert record.command == f"python -m {SMALL.words} --rounds 1"
    assert record.rounds == 1
    assert record.machine["python"] == ".".join(map(str, sys.version_info[:3]))
    [row] = record.figures
    assert row["shape"] == "coupled models"
    for tree in ("before", "now"):
        assert all(row[tree][name] > 0 for name in ("load", "compile", "seconds", "MB"))
    seconds = " | ".join(number(row[tree]["seconds"], 1) for tree in ("before", "now"))
    assert f"reading and compiling, seconds | 1 | {seconds} |" in find_tables(copy.page)["goals"]
    same = {name for name, table in find_tables(PAGE).items() if table == find_tables(copy.page)[name]}
    assert same == TABLES.keys() - {"goals"}


@pytest.mark.long
@pytest.mark.needs("torch", "tensorflow")
@pytest.mark.parametrize("name", ["memory", "steps", "processes", "tensorflow"])
def test_a_benchmark_has_the_figures_that_its_tables_show(name: str, copy: Session) -> None:
    assert copy.run({name: BENCHMARKS[name]}) == []
    assert find_changes(copy) == {name}


def test_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name}: {benchmark.measures}\n" in shown for name, benchmark in BENCHMARKS.items())
    with pytest.raises(SystemExit, match="2"):
        main(["speed"])
    assert "no benchmark is named speed; --list says which there are" in capsys.readouterr().err


def test_numbers_are_rounded_as_people_round_them() -> None:
    assert [number(0.975), number(0.965), number(1.0), number(2.5, 0), number(17882, 0)] == [
        "0.98",
        "0.97",
        "1.00",
        "3",
        "17882",
    ]
    assert [spread([1, 1, 1]), spread([1.2, 1.0, 1.255])] == ["", "1.00 - 1.26"]


def test_a_file_of_figures_has_a_line_for_each_row(tmp_path: Path) -> None:
    record = replace(
        read(RESULTS, "loop"), figures=[{"step": "a", "of bare": [1 / 3, 2]}, {"step": "b", "ms": 1234567.8}]
    )
    store(record, tmp_path, "loop")
    lines = (tmp_path / "loop.json").read_text(encoding="utf-8").splitlines()
    assert [json.loads(each.rstrip(",")) for each in lines[-4:-2]] == [
        {"step": "a", "of bare": [0.333333, 2]},
        {"step": "b", "ms": 1234570.0},
    ]

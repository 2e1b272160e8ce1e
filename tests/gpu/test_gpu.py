"""`make gpu` works unseen: every check runs on the CPU, and a case that ends its process ends nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.__main__ import NEEDED, main
from tests.gpu.case import Case, Check, Wrong
from tests.gpu.checks import CHECKS
from tests.gpu.page import BEGIN, END, PAGE, results, write
from tests.gpu.watching import Watch
from tests.gpu.worker import AGAIN, try_all

ROOT = Path(__file__).parents[2]
WORKER = """
import json, os, sys, time
skip = json.loads(sys.argv[1]).get("one", 0)
say = lambda **told: print(json.dumps({"check": "one", **told}), flush=True)
for case, name in enumerate(["right", "crash", "hang", "lost", "wrong"]):
    if case < skip:
        continue
    say(begin=name, long=False)
    if name == "crash":
        os.abort()
    if name == "hang":
        time.sleep(60)
    problem = {} if name == "right" else {"problem": "it is " + name}
    say(case=name, cells=["1"], seconds=0.5, **problem)
    if name == "lost":
        sys.exit(AGAIN)
say(ended=True)
""".replace("AGAIN", str(AGAIN))
"""A process whose cases end it in every way there is."""


SLOW = ("captured", "captured bench", "bench")


@pytest.mark.parametrize(
    "check", [pytest.param(each, id=each.name, marks=[pytest.mark.long] * (each.name in SLOW)) for each in CHECKS]
)
def test_the_first_case_of_every_check_is_right_on_a_cpu(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.backends.torch import capture
    from tests.gpu import timing

    monkeypatch.setattr(capture, "COMPILER", lambda graph, inputs: graph.forward)
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(timing, "MOST", 3)
    case = next(check.cases("cpu"), None)
    assert (case is None) == (check.name == "memory")
    cells = case.run() if case is not None else None
    assert len(cells or ()) in (0, len(check.columns))


def test_a_process_that_ends_amid_a_case_costs_that_case_alone() -> None:
    watch = Watch(
        command=lambda skip: [sys.executable, "-c", WORKER, re.sub("'", '"', str(dict(skip)))],
        until=time.time() + 30,
        limits=(1.0, 1.0, 10.0),
    )
    tally = watch.run()["one"]
    assert (tally.done, tally.has_ended, tally.rows) == (5, True, {"right": ["1"]})
    assert list(tally.problems) == ["crash", "hang", "lost", "wrong"]
    assert "status -6" in tally.problems["crash"]
    assert "no end" in tally.problems["hang"]


def fails() -> None:
    raise Wrong("it is off by | one")


def test_a_case_that_raises_is_told_on_the_page_and_the_others_go_on(tmp_path: Path) -> None:
    cases = (Case(name="bad", run=fails), Case(name="good", run=lambda: (7,)))
    check = Check(name="one", asks="?", against="!", cases=lambda _: iter(cases), share=1, columns=("figure",))
    watch = Watch(command=lambda _: (), until=0)
    for line in try_all([check], "cpu", time.time() + 60, {}):
        watch.note(line)
    write(tmp_path / "gpu.md", "a device", [check], watch.tallies)
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    for told in ("Run on a device.", "| one | 2 | 1 | 1 |", "- bad: `Wrong: it is off by / one`", "| good | 7 |"):
        assert told in text
    assert text.partition(BEGIN)[0] == PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    assert [*results("x", [check], {})][2] == "| one | 0 | 0 | 0 | 0 | not run |"


def test_a_check_stops_where_its_share_of_the_time_is_over() -> None:
    told: list[dict[str, object]] = []
    for name in ("early", "late"):
        check = Check(name=name, asks="?", against="!", cases=lambda _: iter([Case(name="a", run=fails)]), share=1)
        told += try_all([check], "cpu", time.time() + (60 if name == "late" else -1), {})
    assert [each for each in told if each["check"] == "early"] == [
        {"check": "early", "out_of_time": True},
        {"check": "early", "ended": True},
    ]
    assert sum("case" in each for each in told) == 1


@pytest.mark.long
def test_it_needs_no_more_than_it_says() -> None:
    """Block everything else that is installed, as where there is PyTorch alone."""
    allowed = {*NEEDED, "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
    program = f"""
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, requires
allowed = {allowed!r} | {{"sympy", "mpmath", "jinja2", "markupsafe", "fsspec", "filelock", "torchgen", "functorch"}}
class Block:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in known - allowed:
            raise ModuleNotFoundError(name)
known = set(packages_distributions()) - {{"graphspec", "compiler", "runtime", "stepgraph", "schemas"}}
sys.meta_path.insert(0, Block)
from tests.gpu.__main__ import main
sys.exit(main(["--device", "cpu", "--most", "1", *sys.argv[1:]]))
"""
    named = [each.name for each in CHECKS if not each.name.startswith("captured")]  # Inductor needs more: a compiler
    done = subprocess.run(
        [sys.executable, "-c", program, *named], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_missing_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from tests.gpu import __main__ as command

    monkeypatch.setattr(command, "NEEDED", {"torch": "torch", "no_such_module": "no-such"})
    assert main([]) == 2
    assert "lacks no-such; with a network: pip install no-such\n" in capsys.readouterr().err
    assert main(["--missing"]) == 0
    assert capsys.readouterr().out == "no-such\n"


def test_the_page_lists_the_checks() -> None:
    listed = re.findall(
        r"^\| `([\w ]+)` \| (.*) \| (.*) \|$", PAGE.read_text(encoding="utf-8").partition(BEGIN)[0], re.M
    )
    assert listed == [(each.name, each.asks, each.against) for each in CHECKS]
    assert END in PAGE.read_text(encoding="utf-8")

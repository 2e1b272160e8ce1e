"""Broken specs through the command: exit code 1 and a message with code, place and remedy, whole texts kept as files.

To write all expected texts anew: ``python -m tests.golden.test_invalid``, with names (``buffers overlap``) for these
alone; then read the difference as a user would.
What must be in them is told independently, in the tables of invalid/cases.py and invalid/slips.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.cli import execute
from tests.golden.invalid.case import HERE, Case
from tests.golden.invalid.cases import CASES
from tests.golden.invalid.documents import FILES, write_documents

ROOT = Path(__file__).resolve().parents[2]
NOT_FOR_USERS = re.compile(
    r"Traceback \(most recent call last\)|internal error|site-packages|dist-packages|<stepgraph|importlib"
    rf"|{re.escape(str(ROOT))}"
)
PROBLEM = re.compile(r"(?:error|warning)\[([\w-]+)\]: .*(?:\n *--> .*?(:\d+:\d+)$)?", re.MULTILINE)
EXCERPT = re.compile(r"^\d+ \|.*$", re.MULTILINE)
SMALL = """graphspec: 1
name: small
inputs: {x: {shape: [batch, 8], dtype: float32}}
models:
  net: {layers: [{conv2d: {out: 4, kernel: 3, padding: 1}}], optimizer: {name: adam, lr: 0.1}}
  user: {class: zoo:Net, optimizer: sgd, traits: {buffers: false}}
ops:
  y: {forward: net, inputs: x}
  error: {loss: mse, inputs: [y, 0.0]}
  learn: {update: net, loss: error, clip: {norm: 1.0}}
outputs: [error, y]
data: {train: {source: npz, path: x.npz, batch: 8}}
run: {steps: 100, images: {value: y}}
"""
BY_NAME = {case.name: case for case in CASES}
IN_A_PROCESS_OF_THEIR_OWN = (
    "empty", "binary", "too_large", "deep", "alias_bomb", "unknown_keys", "override", "cycle", "two_versions",
    "defer_never", "overlap", "raises_in_forward",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with every broken spec and what belongs to them."""
    path = tmp_path_factory.mktemp("invalid")
    write_documents(path)
    return path


@pytest.fixture
def there(folder, monkeypatch):
    """Work in the folder of the broken specs, where messages have no colours."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return folder


def find_told(text: str) -> Iterator[tuple[str, str]]:
    """Yield every problem of a printed text: code with place, and what is said beside the message and the source."""
    problems = list(PROBLEM.finditer(text))
    ends = [problem.start() for problem in problems[1:]]
    for problem, end in zip(problems, [*ends, len(text)], strict=True):
        code, place = problem.groups(default="")
        yield f"{code} {place[1:]}".strip(), EXCERPT.sub("", text[problem.start() : end])


def compile_without_command(case: Case) -> str:
    """Return the message of a case as Python code gets it."""
    _, file, *more = case.command
    assignments = [more[index + 1] for index, word in enumerate(more) if word == "-s"]
    with pytest.raises(SpecError, match=r"^error|^warning") as raised:
        compile_step(load(Path(file), assignments))
    return f"{raised.value}\n"


def parameters(cases: Iterable[Case]) -> list[object]:
    """Return cases as parameters; a run needs PyTorch, by which it is told what is wrong."""
    needed = pytest.mark.needs("torch")
    return [pytest.param(case, id=case.name, marks=needed if case.command[0] == "run" else ()) for case in cases]


@pytest.mark.parametrize("case", parameters(CASES))
def test_the_message_reads_as_before_and_the_exit_code_is_1(there, capsys, case):
    assert execute(case.command) == 1
    captured = capsys.readouterr()
    assert captured.err == case.golden.read_text(encoding="utf-8")
    assert NOT_FOR_USERS.search(captured.out + captured.err) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_problem_is_told_with_code_place_and_remedy(case):
    told = list(find_told(case.golden.read_text(encoding="utf-8")))
    assert [problem for problem, _ in told] == list(case.told)
    assert [words for (_, text), words in zip(told, case.told.values(), strict=True) if words not in text] == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", parameters(BY_NAME[name] for name in IN_A_PROCESS_OF_THEIR_OWN))
def test_a_process_of_its_own_tells_the_same(there, case):
    command = [sys.executable, "-c", "from runtime.cli import main; main()", *case.command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert done.stderr == case.golden.read_text(encoding="utf-8")
    assert "Traceback" not in done.stdout


def test_two_at_a_time_tell_what_one_alone_does(there):
    cases = [case for case in CASES if case.command[0] != "run"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            told = list(pool.map(compile_without_command, cases))
    finally:
        sys.setswitchinterval(interval)
    assert told == [case.golden.read_text(encoding="utf-8") for case in cases]


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("name: small", "GS040"),
        ("dtype:", "GS040"),
        ("layers:", "GS040"),
        ("kernel:", "GS112"),
        ("lr:", "GS112"),
        ("buffers:", "GS040"),
        ("inputs: x", "GS040"),
        ("norm:", "GS040"),
        ("batch: 8", "GS040"),
        ("steps:", "GS040"),
        ("value:", "GS040"),
    ],
)
def test_an_unknown_key_beside_others_is_the_only_problem_at_every_depth(before, code):
    at = SMALL.index(before)
    start = SMALL.rfind("\n", 0, at) + 1
    end = "\n" if start == at else ", "
    with pytest.raises(SpecError, match="'wrong'") as raised:
        load(f"{SMALL[:at]}wrong: 1{end}{SMALL[at:]}")
    (found,) = raised.value.diagnostics
    assert (found.code, found.span.line, found.span.column) == (code, SMALL.count("\n", 0, at) + 1, at - start + 1)


def test_the_small_spec_without_an_unknown_key_has_no_problem():
    assert load(SMALL).name == "small"


def test_there_is_a_case_for_every_file_and_a_file_for_every_case():
    written = {path.name for path in (*HERE.glob("*.yaml"), *HERE.glob("*.json"))}
    made = {name for name in FILES if name.endswith((".yaml", ".json"))}
    named = {case.command[1] for case in CASES} - {"two_version.yaml", "folder.yaml"}
    assert named == written | made
    assert {path.stem for path in HERE.glob("*.txt")} == {case.name for case in CASES}


def write_texts(names: Iterable[str]) -> None:
    """Write the expected texts of some cases; without names, of all."""
    chosen = [BY_NAME[name] for name in names] or CASES
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        write_documents(Path(name))
        for case in chosen:
            with contextlib.redirect_stderr(io.StringIO()) as printed, contextlib.redirect_stdout(io.StringIO()):
                execute(case.command)
            case.golden.write_text(printed.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - BY_NAME.keys():
        sys.exit(f"no such cases: {', '.join(sorted(unknown))}; their names are those of tests/golden/invalid/*.txt")
    write_texts(sys.argv[1:])

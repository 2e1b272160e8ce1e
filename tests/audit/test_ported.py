"""What the sound loops become as specs: each is valid, but for what its TODOs leave to the author."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.port.porting import port_script
from runtime.port.values import TODO
from tests.audit.port import loops
from tests.audit.test_port import EQUAL

LEFT = [path for path in loops() if path.stem.removeprefix("sound_") not in EQUAL]
"""The others have no TODO."""
ENTRY = re.compile(r"  (\w+): (?P<text>.*)")


def find_open(lines: list[str]) -> set[int]:
    """Return the numbers of the lines that wait for their author: what a TODO marks, and what is made of that."""
    entries = {number: found for number, line in enumerate(lines, 1) if (found := ENTRY.match(line))}
    found = {number for number in entries if TODO in lines[number - 2] or TODO in lines[number - 1]}
    while True:
        names = {entries[number][1] for number in found}
        made = {number for number, each in entries.items() if names & {*re.findall(r"\w+", each["text"])}}
        if made <= found:
            return found | {number for number, line in enumerate(lines, 1) if line.startswith("outputs:")}
        found |= made


def find_errors(text: str) -> list[str]:
    """Return the errors of a spec at lines that are complete."""
    lines = text.splitlines()
    try:
        compile_step(load(text))
    except SpecError as error:
        places = [(each, each.span.line if each.span else 0) for each in error.diagnostics if each.severity == "error"]
        return [str(each) for each, line in places if line not in find_open(lines)]
    return []


def test_an_error_counts_where_nothing_is_left_to_do():
    spec = "graphspec: 1\nname: a\ninputs:\n  x: {{shape: [batch, 2]}}\nmodels:\n  net: {{layers: [{{linear: 1}}]}}\n"
    spec += "ops:\n{}"
    update = "  y: {{forward: net, inputs: {}}}\n  step: {{update: net, loss: mean(y), optimizer: adam}}\n"
    assert find_errors(spec.format(update.format("x"))) == []
    assert find_errors(spec.format(f"  # {TODO} a.py:3: something\n" + update.format("z"))) == []
    assert len(find_errors(spec.format(update.format("z")))) == 1


@pytest.mark.long
@pytest.mark.parametrize("path", LEFT, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_the_spec_of_a_loop_is_valid_but_for_its_todos(path: Path, capsys: pytest.CaptureFixture[str]):
    made, problem = port_script(path, (), 3)
    assert problem is None
    assert find_errors(made.text) == []
    assert made.todos or TODO not in made.text

"""The user's part of a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.problems import describe, user_frames

SOURCE = """import json
import numpy as np
def read(): return json.loads("{")
def stack(): return np.stack([np.zeros(2), np.zeros(3)])
"""


def frames_of(name: str, file: Path) -> tuple[str, ...]:
    file.write_text(SOURCE)
    space: dict[str, object] = {}
    exec(compile(SOURCE, str(file), "exec"), space)
    try:
        space[name]()
    except ValueError as error:
        return tuple(line for line in user_frames(error) if "test_frames" not in line)
    raise AssertionError("nothing was raised")


def test_frames_of_libraries_are_left_out(workdir):
    assert frames_of("read", workdir / "mine.py") == ('mine.py:3 in read: def read(): return json.loads("{")',)
    assert [line.split(":")[0] for line in frames_of("stack", workdir / "mine.py")] == ["mine.py"]


def test_files_elsewhere_have_their_whole_path(workdir, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "mine.py"
    assert frames_of("read", other)[0].startswith(f"{other}:3 in read")


def test_generated_code_is_left_out():
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        exec(compile("1 / 0", "<stepgraph gan>", "exec"))
    assert [line for line in user_frames(caught.value) if line.startswith("<stepgraph")] == []


def test_an_error_is_described_by_its_type_and_first_line():
    assert describe(ValueError("one\ntwo")) == "ValueError: one"
    assert describe(KeyError()) == "KeyError"
    assert describe(json.JSONDecodeError("bad", "x", 0)) == "JSONDecodeError: bad: line 1 column 1 (char 0)"

"""An audit finds the bugs of the labelled scripts, but for some that are named here, and none in sound ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.audit.labels import CASES, read_label, scripts
from tests.audit.scoring import Auditor, start

pytestmark = pytest.mark.xdist_group("audits")  # they share the process that has imported PyTorch

MISSED: Mapping[str, str] = {
    "h31_td_value": "one backward and one optimizer: it looks like two losses of a shared network",
    "h53_dino_center_per_micro_batch": "the center is neither a buffer nor stepped, so that no write of it is seen",
}
"""Scripts with a bug that an audit does not find, with the reason."""


@pytest.fixture(scope="module")
def auditor() -> Iterator[Auditor]:
    with start() as auditor:
        yield auditor


def test_what_is_known_to_be_missed_is_a_script_and_on_their_page():
    assert MISSED.keys() <= {path.stem for path in scripts("h")}
    page = (CASES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^- `(h\w+)\.py`:", page, re.MULTILINE)) == MISSED.keys()


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", scripts("h"), ids=lambda path: path.stem)
def test_a_bug_is_found_at_one_of_its_lines_unless_it_is_known_to_be_missed(path: Path, auditor: Auditor):
    label = read_label(path)
    assert label is not None
    audited = auditor.audit(path)
    assert audited.finds(label) == (path.stem not in MISSED), audited
    assert audited.error.partition(":")[0] == (label.raises or "")


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", scripts("sound_"), ids=lambda path: path.stem)
def test_a_sound_script_has_no_error_and_no_warning(path: Path, auditor: Auditor):
    audited = auditor.audit(path)
    assert (audited.serious, audited.error) == ([], "")


def test_no_sync_around_forward_and_backward_is_no_waste(auditor: Auditor):
    assert tuple(auditor.audit(CASES / "sound_ddp_one_process.py").findings) == ()


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", [*scripts("sound_"), *scripts("h")], ids=lambda path: path.stem)
def test_a_loop_in_a_function_has_the_findings_of_the_same_loop_in_a_module(
    path: Path, auditor: Auditor, tmp_path: Path
):
    inside = tmp_path / path.name
    inside.write_text(put_in_function(path.read_text(encoding="utf-8")), encoding="utf-8")
    plain, wrapped = auditor.audit(path), auditor.audit(inside)
    found = {(each.code, each.level, frozenset(line - 1 for line in each.lines)) for each in wrapped.findings}
    assert found == {(each.code, each.level, each.lines) for each in plain.findings}
    assert wrapped.error == plain.error


def put_in_function(source: str) -> str:
    """Return a program that runs in a function; every line is one further down."""
    texts = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant | ast.JoinedStr))
    kept = {line for each in texts for line in range(each.lineno + 1, each.end_lineno + 1)}
    lines = (line if number in kept else f"    {line}" for number, line in enumerate(source.splitlines(), 1))
    return "\n".join(["def program():", *lines, "", "program()", ""])


def test_an_audit_without_a_report_is_an_error(auditor: Auditor, tmp_path: Path):
    path = tmp_path / "ends.py"
    path.write_text("import os\nos._exit(3)\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="ended with 3"):
        auditor.audit(path)

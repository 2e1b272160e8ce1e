"""Diagnostics in the editor: those of `stepgraph check`, at the same places, with the remedy and the notes."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime.train.pace import find_declared_pace
from tests.golden.invalid.cases import CASES
from tests.golden.invalid.documents import write_documents
from tests.lsp.editor import Editor

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
NO_TEXT = {"empty.yaml", "binary.yaml", "latin1.yaml", "utf16.yaml", "two_version.yaml", "folder.yaml"}
"""What is no text with a spec in it, so that an editor has nothing to check."""
NAMES = sorted({case.command[1] for case in CASES if case.command[0] == "check"} - NO_TEXT)
SMALL = """graphspec: 1
name: small
inputs: {x: {shape: [batch, 8]}}
models:
  net: {layers: [{linear: 4}], optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  learn: {update: net, loss: "mean(y)"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("invalid")
    write_documents(path)
    return path


@pytest.fixture(scope="module")
def editor(folder):
    made = Editor(folder)
    yield made
    assert made.quit() == 0
    assert made.logged == []


def find_problems(path: Path):
    """Return every problem that `check` prints."""
    try:
        spec = load(path)
    except SpecError as error:
        return error.diagnostics
    try:
        plan = compile_step(spec, pace=find_declared_pace(spec, path), pending=True)
    except SpecError as error:
        return error.diagnostics
    return (*plan.warnings, *plan.pending)


def in_units(text: str, line: int, column: int) -> tuple[int, int]:
    """Return a place as an editor counts: from 0, columns in UTF-16."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return line - 1, len(lines[line - 1][: column - 1].encode("utf-16-le")) // 2


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_editor_shows_what_check_tells(editor, folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    problems = find_problems(Path(name))
    content = (folder / name).read_bytes().decode()
    found = editor.check(name, content)
    expected = []
    for each in problems:
        span = each.span
        if span is not None and span.file != name:
            continue  # an included file has its own list
        start = end = (0, 0)
        if span is not None:
            start = in_units(content, span.line, span.column)
            end = in_units(content, span.end_line, span.end_column)
        remedy = f"help: {each.help}" if each.help else ""
        message = "\n".join(part for part in (each.message, each.label, remedy) if part)
        notes = (*each.notes, *(span.via if span is not None else ()))
        expected.append((start, end, each.code, SEVERITIES[each.severity], message, notes))
    shown = []
    for each in found:
        start, end = ((place.line, place.character) for place in (each.range.start, each.range.end))
        notes = tuple(note.message for note in each.related_information or ())
        shown.append((start, end, each.code, each.severity, each.message, notes))
        assert each.source == "stepgraph"
    assert sorted(shown) == sorted(expected)
    editor.close(name)


def test_a_note_that_names_a_place_points_there(editor, folder):
    name = "block_names.yaml"
    found = editor.check(name, (folder / name).read_text())
    related = [note for each in found for note in each.related_information or () if "uses the block" in note.message]
    assert related
    for note in related:
        line, column = map(int, note.message.rpartition(f"{name}:")[2].split(":"))
        assert (note.location.range.start.line + 1, note.location.range.start.character + 1) == (line, column)
    editor.close(name)


def test_what_is_wrong_in_an_included_file_is_shown_there_and_the_text_of_the_editor_counts(editor, folder):
    (folder / "part.yaml").write_text("vars: {lr: 1e-3}\n")
    text = SMALL.replace("inputs:", "include: part.yaml\ninputs:", 1).replace(": sgd", ': {name: sgd, lr: "${lr}"}')
    assert editor.check("whole.yaml", text) == []
    editor.write("part.yaml", "vars: {lr: 1e-3\n")
    part = editor.uri("part.yaml")
    editor.wait(lambda found: part in found and len(found[part].diagnostics) == 1)
    assert editor.published[part].diagnostics[0].code == "GS004"
    assert (folder / "part.yaml").read_text() == "vars: {lr: 1e-3}\n"
    editor.write("part.yaml", "vars: {rate: 1e-3}\n")
    whole = editor.uri("whole.yaml")
    editor.wait(lambda found: [each.code for each in found[whole].diagnostics] == ["GS030"])
    editor.wait(lambda found: found[part].diagnostics in ([], ()))
    editor.close("part.yaml")
    editor.wait(lambda found: not found[whole].diagnostics)  # the file on the disk counts again
    editor.close("whole.yaml")


def test_a_text_that_is_no_spec_is_left_alone(editor):
    editor.write("compose.yaml", "services: {web: {image: nginx}\n")
    assert editor.complete_at("compose.yaml", types.Position(0, 12)) == {}
    assert editor.hover("compose.yaml", "services") == ""
    assert editor.check("small.yaml", SMALL) == []
    assert editor.uri("compose.yaml") not in editor.published
    # It becomes one, and ceases to be one.
    assert [each.code for each in editor.check("compose.yaml", "graphspec: 1\n")] == ["GS042", "GS042"]
    editor.write("compose.yaml", "services: {}\n")
    uri = editor.uri("compose.yaml")
    editor.wait(lambda found: not found[uri].diagnostics)
    editor.close("compose.yaml")


def test_a_text_without_a_file_is_checked_but_includes_nothing(editor):
    assert editor.check("untitled:Untitled-1", SMALL) == []
    found = editor.check("untitled:Untitled-1", SMALL.replace("inputs:", "include: part.yaml\ninputs:", 1))
    assert [each.code for each in found] == ["GS066"]
    editor.close("untitled:Untitled-1")


def test_the_units_of_columns_are_those_that_the_editor_wants(folder):
    text = SMALL.replace("name: small", "name: small  # 🙂").replace("{forward: net,", '{doc: "🙂🙂", forward: nett,')
    columns = {}
    for encoding in (None, types.PositionEncodingKind.Utf32, types.PositionEncodingKind.Utf8):
        editor = Editor(folder, None if encoding is None else [encoding])
        (found,) = editor.check("units.yaml", text)
        columns[encoding] = found.range.start.character
        assert found.code == "GS103"
        assert editor.quit() == 0
    line = next(line for line in text.split("\n") if "nett" in line)
    at = line.index("nett")
    assert columns == {
        None: at + 2,
        types.PositionEncodingKind.Utf32: at,
        types.PositionEncodingKind.Utf8: at + 6,
    }


def test_lines_may_end_in_any_way(editor):
    for end in ("\n", "\r\n", "\r"):
        text = SMALL.replace("inputs: x}", "inputs: X}").replace("\n", end)
        (found,) = editor.check("ends.yaml", text)
        assert (found.code, found.range.start.line, found.range.start.character) == ("GS104", 6, 28)
        (fix,) = editor.fixes("ends.yaml", found.range)
        assert fix.edit.changes[editor.uri("ends.yaml")][0].new_text == "x"
    editor.close("ends.yaml")


MEANT = {case.command[1] for case in CASES if "did you mean" in case.golden.read_text(encoding="utf-8")}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(MEANT & {*NAMES}))
def test_a_quick_fix_removes_its_problem(editor, folder, name):
    content = (folder / name).read_bytes().decode()
    found = editor.check(name, content)
    meant = [each for each in found if "did you mean" in each.message]
    fixed = 0
    for each in meant:
        for fix in editor.fixes(name, each.range):
            (told,) = fix.diagnostics
            changed = editor.apply(name, fix.edit.changes[editor.uri(name)])
            after = editor.check(f"fixed_{name}", changed)
            editor.close(f"fixed_{name}")
            assert (told.code, told.message) not in [(other.code, other.message) for other in after]
            fixed += 1
    assert fixed >= len(meant)
    editor.close(name)

"""Includes: what other files share is as if it were written in the document; nothing outside of the root is read."""

from __future__ import annotations

import os

import pytest

from graphspec import SpecError, load
from graphspec.expand.includes import include_files
from graphspec.limits import Limits
from graphspec.loading import read_spec
from graphspec.read.source import read_document

SPEC = """graphspec: 1
name: main
include: [shared/blocks.yaml, shared/nets.json]
vars: {own: 2}
inputs: {x: {shape: [batch, 4]}}
ops:
  fit: {use: fitting, inputs: x}
  step: {update: net, loss: fit.cost}
  shown: {call: mul, inputs: [x, "${scale}"]}
outputs: [shown]
"""
BLOCKS = """include: numbers.yaml
blocks:
  fitting:
    inputs: [seen]
    outputs: [cost]
    ops:
      out: {forward: net, inputs: seen}
      cost: {loss: mse, inputs: [out, seen], weight: "${scale}"}
"""
NETS = '{"models": {"net": {"layers": [{"linear": 4}], "optimizer": "sgd"}}}'
NUMBERS = 'vars: {base: 3, scale: "${= base / 2}"}\n'


@pytest.fixture
def folder(tmp_path):
    """Return a project with a spec and three files that it includes, one of them by another."""
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "specs" / "shared").mkdir(parents=True)
    for name, text in {"blocks.yaml": BLOCKS, "nets.json": NETS, "numbers.yaml": NUMBERS}.items():
        (tmp_path / "specs" / "shared" / name).write_text(text)
    (tmp_path / "specs" / "main.yaml").write_text(SPEC)
    return tmp_path / "specs"


def change(folder, name, before, after):
    path = folder / name
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def find_problem(folder, **options):
    """Return the only problem of the spec: its message, its file, and what its caret marks."""
    with pytest.raises(SpecError) as raised:
        load(folder / "main.yaml", **options)
    (found,) = raised.value.diagnostics
    line = raised.value.texts[found.span.file].splitlines()[found.span.line - 1]
    assert str(raised.value)
    return (
        found.message,
        os.path.relpath(found.span.file, folder),
        line[found.span.column - 1 : found.span.end_column - 1],
    )


def test_what_files_share_is_as_if_it_were_written_here(folder):
    spec = load(folder / "main.yaml")
    assert (spec.ops["fit.cost"].weight, dict(spec.ops["shown"].inputs.items())[1]) == (1.5, 1.5)
    assert spec.models["net"].optimizer.name == "sgd"
    assert load(folder / "main.yaml", ["vars.base=8"]).ops["fit.cost"].weight == 4
    assert spec.span("models", "net").file == str(folder / "shared" / "nets.json")


def test_a_mistake_in_an_included_file_is_told_there(folder):
    change(folder, "shared/nets.json", '"linear"', '"linaer"')
    assert find_problem(folder)[1:] == ("shared/nets.json", '"linaer"')


@pytest.mark.parametrize(
    ("name", "before", "after", "message", "file", "marked"),
    [
        ("main.yaml", "shared/nets.json", "shared/net.json", "there is no file", "main.yaml", "shared/net.json"),
        (
            "main.yaml",
            "shared/nets.json",
            "https://a.b/c.yaml",
            "'https://a.b/c.yaml' is an address",
            "main.yaml",
            "https://a.b/c.yaml",
        ),
        (
            "main.yaml",
            "shared/nets.json",
            "../../other.yaml",
            "'../../other.yaml' lies outside of the root folder",
            "main.yaml",
            "../../other.yaml",
        ),
        ("main.yaml", "shared/nets.json", "3", "expected the path of a file, found the number 3", "main.yaml", "3"),
        (
            "main.yaml",
            "shared/nets.json",
            "main.yaml",
            "files include each other: main.yaml -> main.yaml",
            "main.yaml",
            "main.yaml",
        ),
        (
            "shared/numbers.yaml",
            "vars",
            "include: [blocks.yaml]\nvars",
            "files include each other: blocks.yaml -> numbers.yaml -> blocks.yaml",
            "shared/numbers.yaml",
            "blocks.yaml",
        ),
        (
            "main.yaml",
            "own: 2",
            "base: 2",
            "'base' of `vars` is declared twice: here and at",
            "shared/numbers.yaml",
            "base",
        ),
        (
            "shared/nets.json",
            '{"models"',
            '{"vars": {"base": 1}, "models"',
            "'base' of `vars` is declared twice: here and at",
            "shared/nets.json",
            '"base"',
        ),
        (
            "shared/nets.json",
            '{"models"',
            '{"ops": {}, "models"',
            "an included file shares `blocks`, `models` and `vars`, found 'ops'",
            "shared/nets.json",
            '"ops"',
        ),
        ("shared/numbers.yaml", NUMBERS, "[1]\n", "holds a list, and no mapping", "shared/blocks.yaml", "numbers.yaml"),
        (
            "shared/numbers.yaml",
            NUMBERS,
            "vars: [1]\n",
            "expected a mapping as `vars`, found a list",
            "shared/numbers.yaml",
            "[1]",
        ),
        ("shared/numbers.yaml", "3,", "3,,", None, "shared/numbers.yaml", None),
    ],
)
def test_what_cannot_be_included_is_told_with_its_place(folder, name, before, after, message, file, marked):
    change(folder, name, before, after)
    found = find_problem(folder)
    assert found[1] == file
    assert message is None or message in found[0]
    assert marked is None or found[2] == marked


def test_the_root_may_be_given_and_links_do_not_lead_out_of_it(folder, tmp_path):
    assert load(folder / "main.yaml", root=folder)
    outside = tmp_path.parent / f"{tmp_path.name}-outside.json"
    outside.write_text(NETS)
    (folder / "shared" / "nets.json").unlink()
    (folder / "shared" / "nets.json").symlink_to(outside)
    assert "lies outside of the root folder" in find_problem(folder)[0]
    assert load(folder / "main.yaml", root=tmp_path.parent)


def test_limits_count_all_files_together(folder):
    change(folder, "shared/numbers.yaml", "vars", "# " + "x" * 3000 + "\nvars")
    assert "larger than 3,500 bytes" in find_problem(folder, limits=Limits(bytes=3_500))[0]


def test_a_text_includes_nothing():
    with pytest.raises(SpecError, match="a text includes nothing"):
        load(SPEC)


def test_a_file_is_read_once_however_many_include_it(folder):
    change(folder, "main.yaml", "shared/nets.json]", "shared/nets.json, shared/numbers.yaml]")
    assert load(folder / "main.yaml").ops["fit.cost"].weight == 1.5


def test_the_texts_of_an_editor_stand_in_place_of_files(folder):
    path = folder / "main.yaml"
    opened = {(folder / "shared" / "numbers.yaml").resolve(): "vars: {base: 10, scale: 7}\n"}
    document = include_files(read_document(path), path, None, Limits(), opened)
    assert document.data["vars"]["scale"] == 7
    assert read_spec(document).ops["fit.cost"].weight == 7

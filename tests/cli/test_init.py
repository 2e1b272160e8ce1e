"""init: the templates check without warnings, and nothing is overwritten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from runtime.cli import execute

TEMPLATES = ["gan", "classifier"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_spec_checks_without_warnings(workdir, capsys, template):
    assert execute(["init", template]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"Now run:\n  stepgraph run {template}.yaml --allow models\n")
    assert execute(["check", f"{template}.yaml"]) == 0
    assert capsys.readouterr().out.startswith(f"{template}.yaml: ok, 0 warnings (")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_model_and_a_loss_of_ones_own_are_used(workdir, template):
    execute(["init", template])
    spec = Path(f"{template}.yaml").read_text()
    defined = [
        node.name
        for node in ast.parse(Path("models.py").read_text()).body
        if not isinstance(node, ast.Import) and isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    assert all(f"models:{name}" in spec for name in defined)
    assert 'loss: "models:' in spec
    assert "class: models:" in spec


def test_without_a_name_it_is_the_gan(workdir):
    assert execute(["init"]) == 0
    assert sorted(path.name for path in workdir.iterdir()) == ["gan.yaml", "models.py"]


@pytest.mark.parametrize("taken", ["gan.yaml", "models.py"])
def test_nothing_is_overwritten(workdir, capsys, taken):
    Path(taken).write_text("mine")
    assert execute(["init", "gan"]) == 1
    assert f"error[GS237]: {taken} exists already; nothing was written" in capsys.readouterr().err
    assert [path.name for path in workdir.iterdir()] == [taken]
    assert Path(taken).read_text() == "mine"

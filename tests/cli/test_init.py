"""init: templates and examples check without warnings, what they need comes along, and nothing is overwritten."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from graphspec.loading import load
from runtime.cli import execute
from runtime.cli.init import find_templates

TEMPLATES = ["gan", "classifier"]
EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")


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
    assert "loss: models:" in spec
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


def test_every_example_is_a_template():
    assert sorted(find_templates()) == sorted([*TEMPLATES, *NAMES])


def test_the_list_has_a_line_for_each(capsys):
    assert execute(["init", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(find_templates())
    assert all(len(line) <= 120 for line in lines)
    assert "sac                SAC with a learned temperature, on the recorded pendulum of td3" in lines
    assert "diffusion          Diffusion (Karras et al. 2022, 2024)" in lines
    assert "ppo                PPO (Schulman et al. 2017) that balances poles on carts (poles.py)" in lines
    assert [line for line in lines if line.count("(") != line.count(")")] == []


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_copied_with_what_it_needs(workdir, capsys, name):
    assert execute(["init", name]) == 0
    printed = capsys.readouterr().out
    wrote = [line.removeprefix("wrote ") for line in printed.splitlines() if line.startswith("wrote ")]
    assert sorted(wrote) == sorted(path.name for path in workdir.iterdir())
    kept = {path.name for path in (EXAMPLES / name).iterdir() if path.is_file()}
    assert kept - {"judgement.py"} <= set(wrote)
    assert "judgement.py" not in wrote
    specs = sorted(path.name for path in (EXAMPLES / name).glob("*.yaml"))
    assert sorted(path.name for path in workdir.glob("*.yaml")) == specs
    for spec in specs:
        assert execute(["check", spec]) == 0
        assert capsys.readouterr().out.startswith(f"{spec}: ok, 0 warnings (")
        assert "../" not in Path(spec).read_text()
    loaded = load(specs[0])
    paths = [source.path for role in loaded.data if (source := loaded.source(role)) is not None]
    assert all(path is None or Path(path).exists() or "python pendulum.py" in printed for path in paths)


@pytest.mark.sample(3)
@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["byol", "custom-classes", "cyclegan-separate", "distillation", "sac", "tied-lm"])
def test_the_commands_that_it_prints_train_it(workdir, capsys, name):
    assert execute(["init", name]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.partition("Now run:\n")[2].splitlines()]
    for program, *arguments in commands[:-1]:
        assert program == "python"
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    assert commands[-1][0] == "stepgraph"
    assert execute([*commands[-1][1:], "--steps", "1", "--plain"]) == 0


def test_an_example_overwrites_nothing_either(workdir, capsys):
    Path("pendulum.py").write_text("mine")
    assert execute(["init", "sac"]) == 1
    assert "error[GS237]: pendulum.py exists already; nothing was written" in capsys.readouterr().err
    assert [path.name for path in workdir.iterdir()] == ["pendulum.py"]


def test_an_unknown_name_is_wrong_usage(workdir, capsys):
    assert execute(["init", "sacc"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert not list(workdir.iterdir())

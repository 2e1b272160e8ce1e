"""The hooks of pre-commit, the GitHub Action and the Dockerfile name commands, options and files that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from runtime.cli import commands

ROOT = Path(__file__).parents[2]
COMMANDS = {name: commands.make_command(name) for name in commands.COMMANDS}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
STEPS = ACTION["runs"]["steps"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_a_command_on_specs(hook):
    program, command = hook["entry"].split()
    assert program == "stepgraph"
    assert command in COMMANDS
    assert re.match(hook["files"], "specs/deep/gan.yaml")
    assert not re.match(hook["files"], "docker-compose.yaml")


def test_the_action_runs_commands_with_their_options():
    scripts = [step["run"] for step in STEPS if "run" in step]
    called = [match.split() for script in scripts for match in re.findall(r'bin/stepgraph" (.+)', script)]
    assert [words[0] for words in called] == ["check", "fmt"]
    for command, *words in called:
        options = {option for each in COMMANDS[command].params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_inputs_of_the_action_reach_no_script_as_text():
    assert not [step for step in STEPS if "${{" in step.get("run", "")]
    used = set(re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])


def test_the_image_is_made_of_what_there_is():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    first = DOCKERFILE.split("\nFROM ")[1]
    copied = [word for line in re.findall(r"^COPY (.+)", first, re.MULTILINE) for word in line.split()[:-1]]
    assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
    packages = {path.parent.name for path in ROOT.glob("*/py.typed")} | {"schemas"}
    assert packages <= set(copied)


def test_the_permission_of_a_mounted_folder_is_not_its_own():
    state = re.search(r"STEPGRAPH_STATE=(\S+)", DOCKERFILE)
    workdir = re.findall(r"^WORKDIR (\S+)", DOCKERFILE, re.MULTILINE)[-1]
    assert state is not None
    assert not state[1].startswith(workdir)

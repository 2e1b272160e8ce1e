"""docs/cli.md: it names every command and every option there is, and its examples are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime.cli import commands, execute

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
COMMANDS = {name: commands.make_command(name) for name in commands.COMMANDS}
PUBLIC = sorted(COMMANDS)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_command_has_a_section_with_its_options(name):
    assert f"\n## {name}\n" in PAGE
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", PAGE))
    options = {option for each in COMMANDS[name].params for option in each.opts if option.startswith("--")}
    assert options <= named


def test_every_option_of_the_page_exists():
    known = {option for command in COMMANDS.values() for each in command.params for option in each.opts}
    known |= {"--help", "--version", "--debug", "--install-completion", "--show-completion"}
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", PAGE)) <= known


def test_shared_options_are_listed_with_their_commands():
    rows = re.findall(r"^\| `(?:-\w`, `)?(--\w+)[^|]*?(?:\\\|[^|]*?)*\| ([a-z, ]+) \|", PAGE, re.MULTILINE)
    for option, names in rows:
        users = {name for name in PUBLIC for each in COMMANDS[name].params if option in each.opts}
        assert set(names.split(", ")) == users, option
    assert len(rows) == 6


def test_the_consoles_of_init_and_check_are_true(workdir, capsys):
    for command in ("init gan", "check gan.yaml"):
        shown = re.search(rf"\$ stepgraph {command}\n(.*?)```", PAGE, re.DOTALL)
        assert shown is not None
        assert execute(command.split()) == 0
        assert capsys.readouterr().out == shown.group(1)

"""Packages import what they offer where it is used: each name is there, and `--help` imports no declarations."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from runtime.cli.commands import COMMANDS

HELP = """
import json, sys
from runtime.cli import execute
code = execute(["--help"])
print(json.dumps([code, sorted(name for name in sys.modules if name.split(".")[0] in sys.argv[1:])]))
"""


@pytest.mark.parametrize("package", ["graphspec", "compiler", "runtime"])
def test_every_name_that_a_package_offers_is_there_and_no_other(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name).__module__.split(".")[0] == package
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_help_imports_no_declarations_and_no_framework():
    heavy = ["pydantic", "yaml", "numpy", "networkx", "torch", "tensorflow"]
    found = subprocess.run([sys.executable, "-c", HELP, *heavy], capture_output=True, text=True, check=True).stdout
    assert json.loads(found.splitlines()[-1]) == [0, []]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_list_of_commands_says_of_each_what_its_own_help_says(command):
    home, summary = COMMANDS[command]
    module, _, function = home.partition(":")
    assert getattr(importlib.import_module(module), function).__doc__ == summary

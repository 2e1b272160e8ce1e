"""What processes have imported before others are forked from them: all commands, and what they do without a framework.

The validators of what two examples declare are among it.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from compiler import compile_step
from graphspec import load
from runtime import checkpoints, data, emit, train
from runtime.cli.commands import COMMANDS

EXAMPLES = Path(__file__).parents[2] / "examples"

for where, _ in COMMANDS.values():
    importlib.import_module(where.partition(":")[0])
for package in (checkpoints, data, train):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
for name in ("gan-digits", "sac"):
    emit(compile_step(load(EXAMPLES / name / f"{name}.yaml")))

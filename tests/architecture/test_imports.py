"""Imports: what is imported exists; planning loads no framework and nothing that a spec names, nor looks for it."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "tensorflow", "keras", "jax"}
LAYERS = ("graphspec", "compiler", "runtime")
FOLDERS = (*LAYERS, "tests", "examples", "benchmarks")

PROBE = """
import json, sys
attempts = []
sys.addaudithook(lambda event, args: attempts.append(args[0]) if event == "import" else None)
class Watch:  # importlib.import_module raises no audit event of its own, but asks every finder
    @staticmethod
    def find_spec(name, path=None, target=None):
        attempts.append(name)
sys.meta_path.insert(0, Watch)
sys.path.insert(0, {root!r})
{body}
loaded = {{name.split(".")[0] for name in sys.modules}}
tried = {{str(name).split(".")[0] for name in attempts}}
print(json.dumps({{"loaded": sorted(loaded), "tried": sorted(tried)}}), file=sys.stderr)
"""

COMMAND = """
from runtime.cli import execute
code = execute({arguments!r})
assert code == 0, code
"""

SPEC = """
graphspec: 1
name: untrusted
inputs: {x: {shape: [batch, 4]}}
models:
  net: {class: "evil_module:Thing", optimizer: {class: "evil_module:Rule", lr: 0.1}}
  other: {class: {torch: "evil_module:Thing", tensorflow: "evil_module:Thing"}, optimizer: sgd}
ops:
  y: {forward: net, inputs: x}
  seen: {call: "evil_module:change", inputs: y}
  z: {forward: other, inputs: seen}
  loss: {loss: "evil_module:error", inputs: z}
  learn: {update: [net, other], loss: loss}
data: {train: {source: "class:evil_module:Data", batch: 4}}
"""

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
class Thing: ...
class Rule: ...
class Data: ...
def change(y): return y
def error(z): return z
"""


class Module(NamedTuple):
    """What a file of the project binds, and what it imports from the project: line, module and name."""

    names: frozenset[str]
    imports: tuple[tuple[int, str, str], ...]


@functools.cache
def read_module(path: Path) -> Module:
    """Return what a file binds and imports; it is parsed and walked once for all tests."""
    names: set[str] = set()
    imports: list[tuple[int, str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Import() | ast.ImportFrom():
                names.update((one.asname or one.name).split(".")[0] for one in node.names)
                if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FOLDERS:
                    imports += [(node.lineno, node.module, one.name) for one in node.names]
    return Module(frozenset(names), tuple(imports))


def find_names(module: str) -> set[str]:
    """Return what a module of the project binds, its submodules included."""
    path = ROOT.joinpath(*module.split("."))
    file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)
    inside = {one.stem for one in path.iterdir()} if path.is_dir() else set()
    return inside | (read_module(file).names if file else set())


def find_imports() -> Iterator[tuple[str, str, str]]:
    """Yield place, module and name of every import that a file of the project makes from the project."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT)
            yield from ((f"{place}:{line}", module, name) for line, module, name in read_module(path).imports)


def probe(body: str, folder: Path) -> dict[str, set[str]]:
    """Run code in a process of its own; return the top-level modules it loaded, and those it tried to."""
    code = PROBE.format(root=str(ROOT), body=body)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {kind: set(names) for kind, names in json.loads(done.stderr.splitlines()[-1]).items()}


PARSED = pytest.mark.xdist_group("parsed imports")
"""One worker, so that every file is parsed once."""


@PARSED
def test_every_name_that_is_imported_from_the_project_exists():
    imports = list(find_imports())
    names = {module: find_names(module) for module in {each[1] for each in imports}}
    missing = [each for each in imports if each[2] not in names[each[1]]]
    assert len(imports) > 3_000
    assert missing == []


@PARSED
def test_no_modules_import_each_other_in_a_circle_not_even_late():
    files = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files}
    found = nx.DiGraph()
    for place, module, name in find_imports():
        importer = place.partition(":")[0].removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if importer in names:
            found.add_edge(importer, f"{module}.{name}" if f"{module}.{name}" in names else module)
    assert len(found) > 300
    assert [circle for circle in nx.strongly_connected_components(found) if len(circle) > 1] == []


def test_the_probe_sees_what_is_loaded_and_what_is_only_tried(tmp_path):
    (tmp_path / "evil_module.py").write_text(EVIL)
    body = """
import evil_module, importlib
try:
    import nowhere_to_be_found
except ImportError:
    pass
try:
    importlib.import_module("nowhere_either")
except ImportError:
    pass
"""
    found = probe(body, tmp_path)
    assert "evil_module" in found["loaded"] & found["tried"]
    assert {"nowhere_to_be_found", "nowhere_either"} <= found["tried"] - found["loaded"]
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("packages", ["graphspec", "graphspec, compiler", "runtime", "runtime.cli"])
def test_no_framework_is_loaded_with(packages, tmp_path):
    found = probe(f"import {packages}", tmp_path)
    assert (found["loaded"] | found["tried"]) & HEAVY == set()


def test_the_language_and_the_compiler_load_no_arrays(tmp_path):
    found = probe("import graphspec, compiler", tmp_path)
    assert found["loaded"] & {"numpy", "matplotlib", "safetensors", "typer", "rich"} == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "spec.yaml"],
        ["plan", "spec.yaml"],
        ["plan", "spec.yaml", "--backend", "tensorflow", "--format", "json"],
        ["plan", "spec.yaml", "--format", "mermaid", "--order", "memory"],
        ["explain", "spec.yaml", "learn"],
        ["emit", "spec.yaml", "-o", "step.py"],
    ],
    ids=" ".join,
)
def test_nothing_that_a_spec_names_is_imported_by(arguments, tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "evil_module.py").write_text(EVIL)
    found = probe(COMMAND.format(arguments=arguments), tmp_path)
    assert (found["loaded"] | found["tried"]) & {*HEAVY, "evil_module"} == set()
    assert not (tmp_path / "imported").exists()


def test_the_api_plans_and_emits_a_spec_without_importing_what_it_names(tmp_path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "evil_module.py").write_text(EVIL)
    body = """
from pathlib import Path
from compiler import compile_step
from graphspec import load
from runtime import emit
plan = compile_step(load(Path("spec.yaml")))
text = emit(plan)
assert "evil_module" in text and plan.explain("learn") and str(plan)
"""
    found = probe(body, tmp_path)
    assert (found["loaded"] | found["tried"]) & {*HEAVY, "evil_module"} == set()
    assert not (tmp_path / "imported").exists()

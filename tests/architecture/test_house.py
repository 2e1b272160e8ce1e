"""The habits of the code, measured: short functions and files, everything documented and annotated, layers kept."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("graphspec", "compiler", "runtime")
TEMPLATES = ROOT / "runtime" / "templates"  # what `stepgraph init` copies out: the user's code, not ours
FRAMEWORKS = {"torch", "tensorflow", "keras"}
LONGEST_FUNCTION = 60
LONGEST_FILE = 550

TEXTS = {".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml", ""}
FOLDERS = (*LAYERS, "schemas", "tests", "examples", "docs", "benchmarks", ".ci")
FOREIGN_PATH = re.compile(r"(?<![\w.~-])/(?:root|work)/|\bshared[/](?:design|facts|hooks|reference|tools)")
SILENCED = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:)")
MARKING = ("runtime/port/", "runtime/cli/port.py", "docs/port.md", "tests/audit/test_port")
"""`stepgraph port` marks in a spec what is left to its author."""
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X|NotImplemente[d](?:Error)?)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def modules() -> dict[Path, ast.Module]:
    """Parse every module of the three layers."""
    paths = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    ours = [path for path in paths if not path.is_relative_to(TEMPLATES)]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"), filename=str(path)) for path in ours}


def nodes(*kinds: type[ast.AST], backends: bool = True) -> Iterator[tuple[str, ast.AST]]:
    """Yield every syntax node of the given kinds with its place."""
    for path, tree in modules().items():
        if backends or path.parts[:2] != ("runtime", "backends"):
            yield from ((f"{path}:{node.lineno}", node) for node in ast.walk(tree) if isinstance(node, kinds))


def body_lines(function: Function) -> int:
    """Count the lines of a function's body without its docstring."""
    first = function.body[min(ast.get_docstring(function) is not None, len(function.body) - 1)]
    return function.end_lineno - first.lineno + 1


def is_annotated(function: Function) -> bool:
    """Return whether all parameters but self and cls, and the result, are annotated."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    bare = [a for a in named if a is not None and a.annotation is None and a.arg not in ("self", "cls")]
    return not bare and function.returns is not None


def imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the top-level names an import statement loads."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.split(".")[0] for name in names}


def project_texts() -> Iterator[tuple[Path, str]]:
    """Yield every text file of the project."""
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    for path in sorted([*inside, *ROOT.iterdir()]):
        if path.is_file() and path.suffix in TEXTS and path.name != ".git":
            yield path.relative_to(ROOT), path.read_bytes().decode("utf-8", errors="replace")


def test_every_folder_of_code_is_a_package_that_the_contracts_see() -> None:
    folders = sorted({path.parent for path in modules()})
    assert [folder for folder in folders if folder / "__init__.py" not in modules()] == []


def test_no_function_is_longer_than_a_screen() -> None:
    lengths = {f"{where} {node.name}": body_lines(node) for where, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)}
    long = {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}
    assert long == {}, f"more than {LONGEST_FUNCTION} lines: give a part with a purpose of its own a name"


def test_no_file_is_too_long() -> None:
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    long = {path.as_posix(): length for path, length in lengths.items() if length > LONGEST_FILE}
    assert long == {}, f"more than {LONGEST_FILE} lines: move what answers another question to a module of its own"


def test_the_rules_below_see_all_three_layers() -> None:
    assert {path.parts[0] for path in modules()} == set(LAYERS)


def test_every_module_says_what_it_is() -> None:
    assert [path for path, tree in modules().items() if not ast.get_docstring(tree)] == []


def test_everything_public_is_documented() -> None:
    named = nodes(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    # The signatures of `overload` stand before the function that is documented.
    ours = [(where, node) for where, node in named if "overload" not in map(ast.unparse, node.decorator_list)]
    bare = [f"{where} {node.name}" for where, node in ours if node.name[0] != "_" and not ast.get_docstring(node)]
    assert bare == []


def test_every_function_is_annotated() -> None:
    functions = nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    assert [f"{where} {node.name}" for where, node in functions if not is_annotated(node)] == []


def test_nothing_outside_the_backends_is_typed_any() -> None:
    names = [where for where, node in nodes(ast.Name, backends=False) if node.id == "Any"]
    attributes = [where for where, node in nodes(ast.Attribute, backends=False) if node.attr == "Any"]
    assert names + attributes == []


def test_no_check_is_silenced_outside_the_backends() -> None:
    ours = [path for path in modules() if path.parts[:2] != ("runtime", "backends")]
    assert [path for path in ours if SILENCED.search((ROOT / path).read_text(encoding="utf-8"))] == []


def test_frameworks_are_imported_only_in_the_backends() -> None:
    imports = nodes(ast.Import, ast.ImportFrom, backends=False)
    assert [where for where, node in imports if imported(node) & FRAMEWORKS] == []


def test_types_are_checked_strictly_outside_the_backends() -> None:
    strict = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pyright"]["strict"]
    folders = {path.parts[:2] for path in modules() if path.parts[0] == "runtime" and len(path.parts) > 2}
    assert {"/".join(folder) for folder in folders} - {"runtime/backends"} <= set(strict)
    assert {"graphspec", "compiler", "runtime/*.py"} <= set(strict)


@pytest.mark.parametrize("tool", ["lint-imports --no-cache", "ruff check --no-cache"])
def test_the_repository_passes(tool: str) -> None:
    name, *options = tool.split()
    command = [Path(sys.executable).with_name(name), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("pattern", [FOREIGN_PATH, UNFINISHED], ids=["path of one machine", "unfinished"])
def test_no_file_of_the_project_mentions_a(pattern: re.Pattern[str]) -> None:
    found = [f"{path}: {match[0]}" for path, text in project_texts() for match in pattern.finditer(text)]
    assert [each for each in found if not each.startswith(MARKING)] == []

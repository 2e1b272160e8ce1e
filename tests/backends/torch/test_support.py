"""Support code: what is used is copied with everything it depends on, and nothing else."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from runtime.codegen.module import unite
from runtime.codegen.support_code import EXCLUDED, ROOT, SHARED, read_library, select_support

LIBRARY = "runtime.backends.torch.library"
LIBRARIES = (LIBRARY, "runtime.backends.tensorflow.library")

OUTER = '''"""Outer."""

import math
from collections.abc import Callable

import torch

from runtime.backends.torch.library.inner import helper

# Why it is two.
LIMIT = 2
"""What it is."""


@torch.no_grad()
def used(x: Callable) -> float:
    """Use."""
    return helper(x) + LIMIT


def unused():
    """Do not use."""
    return math.pi
'''
INNER = '''"""Inner."""

from math import sqrt as root


class Base:
    """Base."""


class helper(Base):
    """Help."""

    def __call__(self, x):
        return root(x)
'''


def library(folder: Path):
    """Return a library of two modules, the first in the alphabet depending on the second."""
    place = folder.joinpath(*LIBRARY.split("."))
    place.mkdir(parents=True)
    (place / "a_outer.py").write_text(OUTER)
    (place / "inner.py").write_text(INNER)
    return read_library(LIBRARY, folder)


def test_a_definition_brings_what_it_depends_on_in_an_order_that_runs(tmp_path):
    support = select_support(["used"], library(tmp_path))
    assert [each.name for each in support.definitions] == ["Base", "helper", "LIMIT", "used"]


def test_only_imports_that_are_used_are_brought(tmp_path):
    imports = [ast.unparse(each) for each in unite(select_support(["used"], library(tmp_path)).imports)]
    assert imports == ["import torch", "from collections.abc import Callable", "from math import sqrt as root"]


def test_comments_above_decorators_and_docstrings_are_copied(tmp_path):
    sources = {each.name: each.source for each in select_support(["used"], library(tmp_path)).definitions}
    assert sources["LIMIT"] == '# Why it is two.\nLIMIT = 2\n"""What it is."""'
    assert sources["used"].startswith("@torch.no_grad()\ndef used(")


def test_names_are_unique_over_the_library():
    folders = [ROOT.joinpath(*package.split(".")) for package in (LIBRARY, SHARED)]
    trees = [ast.parse(path.read_text()) for folder in folders for path in folder.glob("*.py")]
    kinds = (ast.FunctionDef, ast.ClassDef)
    defined = Counter(node.name for tree in trees for node in tree.body if isinstance(node, kinds))
    assert [name for name, count in defined.items() if count > 1] == []


def list_names(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of support code defines; there are no other kinds of statements."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return [name]
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return []
    raise AssertionError(f"line {statement.lineno}: {ast.unparse(statement)}")


@pytest.mark.parametrize("package", LIBRARIES)
def test_names_and_order_found_by_searching_are_those_of_the_syntax_trees(package: str) -> None:
    known = read_library(package)
    folders = [ROOT.joinpath(*each.split(".")) for each in (package, SHARED)]
    paths = [path for folder in folders for path in folder.glob("*.py") if path.stem not in EXCLUDED]
    trees = {path.stem: ast.parse(path.read_text()) for path in paths}
    defined = [(name, stem) for stem, tree in trees.items() for each in tree.body for name in list_names(each)]
    assert sorted(defined) == sorted((name, module.stem) for name, module in known.homes.items())
    positions = {module.stem: module.position for module in known.homes.values()}
    for stem, tree in trees.items():
        froms = [each.module or "" for each in tree.body if isinstance(each, ast.ImportFrom)]
        needed = [module.rpartition(".")[2] for module in froms if known.owns(module)]
        assert all(positions[each] < positions[stem] for each in needed), stem


@pytest.mark.parametrize("package", LIBRARIES)
def test_an_import_means_the_same_over_a_library_and_is_called_as_no_definition(package: str) -> None:
    """All its definitions are executed in one module."""
    known = read_library(package)
    modules = {module.stem: module for module in known.homes.values()}
    imports = [pair for each in modules.values() for pair in each.imports.items() if not known.owns(pair[1][0])]
    assert [name for name, count in Counter(name for name, _ in set(imports)).items() if count > 1] == []
    assert {name for name, _ in imports}.isdisjoint(known.homes)


@pytest.mark.needs("torch")
def test_every_definition_of_the_library_runs_on_its_own():
    known = read_library(LIBRARY)
    for name in known.homes:
        support = select_support([name], known)
        lines = ["from __future__ import annotations", *(ast.unparse(each) for each in unite(support.imports))]
        text = "\n".join([*lines, *(each.source for each in support.definitions)])
        names = {"__name__": "torch"}
        exec(compile(text, name, "exec"), names)
        assert name in names


def test_the_library_needs_nothing_but_torch_and_the_standard_library():
    every = select_support(read_library(LIBRARY).homes, read_library(LIBRARY))
    roots = {module.partition(".")[0] for module, _, _ in every.imports}
    assert roots <= {"torch", *sys.stdlib_module_names}

"""Support code: definitions of the library and their dependencies, copied as source text into the emitted module."""

from __future__ import annotations

import ast
import functools
import re
import symtable
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
SHARED = "runtime.support"
"""The package with support code for any framework."""
EXCLUDED = frozenset({"__init__", "table"})
"""Modules of a library that are not support code."""

HEAD = re.compile(r"^(?:(?:def|class) (?P<defined>\w+)[(:]|(?P<assigned>\w+)(?:: .+)? = )", re.MULTILINE)
"""The first line of a definition."""
IMPORT = re.compile(r"^from ([\w.]+) import ", re.MULTILINE)
"""The first line of an import of names, and the module that has them."""

Imported = tuple[str, str | None, str | None]
"""An import: (module, name taken from it or None, ``as`` name or None)."""


class Definition(Struct, frozen=True, kw_only=True, dict=True):
    """A top-level function, class or constant of the library, with its source."""

    name: str
    module: str
    source: str
    position: int

    @functools.cached_property
    def uses(self) -> frozenset[str]:
        """Return the names it uses; they are found for the few definitions that a module copies, as it takes long."""
        return frozenset(_outer_names(symtable.symtable(self.source, self.module, "exec"))) - {self.name}


class Module(Struct, frozen=True, kw_only=True, dict=True):
    """A module of support code; it is parsed when a definition of it is copied, as a step needs few of the modules."""

    stem: str
    text: str
    position: int

    @functools.cached_property
    def tree(self) -> ast.Module:
        """Return its syntax tree."""
        return ast.parse(self.text)

    @functools.cached_property
    def definitions(self) -> Mapping[str, Definition]:
        """Return what it defines, by name: each with the comments above and a docstring below it."""
        found: dict[str, Definition] = {}
        lines = self.text.split("\n")
        for position, statement in enumerate(self.tree.body):
            match statement:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    decorators = statement.decorator_list
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    decorators = []
                case _:
                    continue  # an import or a docstring
            first = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
            while first > 0 and lines[first - 1].startswith("#"):
                first -= 1
            following = self.tree.body[position + 1] if position + 1 < len(self.tree.body) else None
            # A bare string after a constant is its docstring.
            is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            end = following.end_lineno if following is not None and is_text else statement.end_lineno
            source = "\n".join(lines[first:end])
            found[name] = Definition(name=name, module=self.stem, source=source, position=position)
        return found

    @functools.cached_property
    def imports(self) -> Mapping[str, Imported]:
        """Return what it imports, by the name that it uses for it."""
        found: dict[str, Imported] = {}
        for statement in self.tree.body:
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (alias.name, None, alias.asname)
            elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
                for alias in statement.names:
                    found[alias.asname or alias.name] = (statement.module or "", alias.name, alias.asname)
        return found


class Library(Struct, frozen=True, kw_only=True):
    """The modules of support code for a framework: each under the names that it defines."""

    package: str
    homes: Mapping[str, Module]

    def owns(self, module: str) -> bool:
        """Return whether a module is part of the library, or of the shared support code."""
        return module.startswith((f"{self.package}.", f"{SHARED}."))


class Support(Struct, frozen=True, kw_only=True):
    """The definitions that an emitted module copies, in an order in which they can be run, and their imports."""

    imports: tuple[Imported, ...]
    definitions: tuple[Definition, ...]


@functools.cache
def read_library(package: str, root: Path = ROOT) -> Library:
    """Return a library and the shared support code, read from their source files, without importing them.

    Raises ValueError where two modules define one name: emitted files have all definitions in one namespace.
    """
    folders = [root.joinpath(*each.split(".")) for each in (package, SHARED)]
    paths = sorted((path for folder in folders for path in folder.glob("*.py")), key=lambda path: path.stem)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths if path.stem not in EXCLUDED}
    modules = [
        Module(stem=stem, text=texts[stem], position=position) for position, stem in enumerate(_sort_modules(texts))
    ]
    found = [
        (match["defined"] or match["assigned"], module) for module in modules for match in HEAD.finditer(module.text)
    ]
    twice = sorted(name for name, count in Counter(name for name, _ in found).items() if count > 1)
    if twice:
        raise ValueError(f"the library {package} defines more than once: {', '.join(twice)}")
    return Library(package=package, homes=dict(found))


def select_support(wanted: Iterable[str], library: Library) -> Support:
    """Return the support code of the wanted names: with their dependencies and imports."""
    selected: dict[str, Definition] = {}
    pending = [name for name in wanted if name in library.homes]
    imports: set[Imported] = set()
    while pending:
        name = pending.pop()
        if name in selected:
            continue
        module = library.homes[name]
        selected[name] = module.definitions[name]
        used = selected[name].uses
        taken = (module.imports[each] for each in used if each in module.imports)
        imports.update(each for each in taken if not library.owns(each[0]))  # names of the library are copied instead
        pending.extend(each for each in used if each in library.homes)
    ordered = sorted(selected.values(), key=lambda each: (library.homes[each.name].position, each.position))
    return Support(imports=tuple(sorted(imports, key=str)), definitions=tuple(ordered))


def _sort_modules(texts: Mapping[str, str]) -> list[str]:
    """Return the modules so that each comes after those it imports."""
    ordered: list[str] = []

    def visit(stem: str) -> None:
        """Append a module after its imports."""
        if stem not in ordered and stem in texts:
            for module in IMPORT.findall(texts[stem]):
                visit(module.rpartition(".")[2])
            ordered.append(stem)

    for stem in texts:
        visit(stem)
    return ordered


def _outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that source code takes from the module around it, also those in annotations."""
    is_module = table.get_type() == "module"
    yield from (
        each.get_name() for each in table.get_symbols() if each.is_referenced() and (is_module or each.is_global())
    )
    for inner in table.get_children():
        yield from _outer_names(inner)

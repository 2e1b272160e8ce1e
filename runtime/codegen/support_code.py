"""Support code: definitions of the library and their dependencies, copied as source text into the emitted module."""

from __future__ import annotations

import ast
import functools
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

Imported = tuple[str, str | None, str | None]
"""An import: (module, name taken from it or None, ``as`` name or None)."""


class Definition(Struct, frozen=True, kw_only=True, dict=True):
    """A top-level function, class or constant of the library, with its source."""

    name: str
    module: str
    source: str
    order: int

    @functools.cached_property
    def uses(self) -> frozenset[str]:
        """Return the names it uses; they are found for the few definitions that a module copies, as it takes long."""
        return frozenset(_outer_names(symtable.symtable(self.source, self.module, "exec"))) - {self.name}


class Library(Struct, frozen=True, kw_only=True):
    """All definitions by name, and by module the definitions that its names refer to."""

    package: str
    definitions: Mapping[str, Definition]
    imports: Mapping[str, Mapping[str, Imported]]

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
    trees = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    modules = {stem: (text, ast.parse(text)) for stem, text in trees.items() if stem not in EXCLUDED}
    ordered = _sort_modules({stem: tree for stem, (_, tree) in modules.items()})
    found = [each for stem in ordered for each in _definitions(stem, *modules[stem])]
    twice = sorted(name for name, count in Counter(each.name for each in found).items() if count > 1)
    if twice:
        raise ValueError(f"the library {package} defines more than once: {', '.join(twice)}")
    definitions = {
        each.name: Definition(name=each.name, module=each.module, source=each.source, order=position)
        for position, each in enumerate(found)
    }
    imports = {stem: dict(_imports(tree)) for stem, (_, tree) in modules.items()}
    return Library(package=package, definitions=definitions, imports=imports)


def select_support(wanted: Iterable[str], library: Library) -> Support:
    """Return the support code of the wanted names: with their dependencies and imports."""
    selected: dict[str, Definition] = {}
    pending = [name for name in wanted if name in library.definitions]
    imports: set[Imported] = set()
    while pending:
        definition = library.definitions[pending.pop()]
        if definition.name in selected:
            continue
        selected[definition.name] = definition
        known = library.imports[definition.module]
        used = (known[name] for name in definition.uses if name in known)
        imports.update(each for each in used if not library.owns(each[0]))  # names of the library are copied instead
        pending.extend(name for name in definition.uses if name in library.definitions)
    ordered = sorted(selected.values(), key=lambda definition: definition.order)
    return Support(imports=tuple(sorted(imports, key=str)), definitions=tuple(ordered))


def _sort_modules(trees: Mapping[str, ast.Module]) -> list[str]:
    """Return the modules so that each comes after those it imports."""
    ordered: list[str] = []

    def visit(stem: str) -> None:
        """Append a module after its imports."""
        if stem not in ordered and stem in trees:
            for module, _, _ in dict(_imports(trees[stem])).values():
                visit(module.rpartition(".")[2])
            ordered.append(stem)

    for stem in trees:
        visit(stem)
    return ordered


def _imports(tree: ast.Module) -> Iterator[tuple[str, Imported]]:
    """Yield (local name, import) of a module's imports."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, None, alias.asname)
        elif isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
            for alias in statement.names:
                yield alias.asname or alias.name, (statement.module or "", alias.name, alias.asname)


def _definitions(stem: str, text: str, tree: ast.Module) -> Iterator[Definition]:
    """Yield the definitions of a module in source order, each with the comments above and a docstring below it."""
    lines = text.split("\n")
    for position, statement in enumerate(tree.body):
        match statement:
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                decorators = statement.decorator_list if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []
            case _:
                continue  # an import or a docstring
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
        while first > 0 and lines[first - 1].startswith("#"):
            first -= 1
        following = tree.body[position + 1] if position + 1 < len(tree.body) else None
        # A bare string after a constant is its docstring.
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        end = following.end_lineno if following is not None and is_text else statement.end_lineno
        source = "\n".join(lines[first:end])
        yield Definition(name=name, module=stem, source=source, order=0)


def _outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that source code takes from the module around it, also those in annotations."""
    is_module = table.get_type() == "module"
    yield from (
        each.get_name() for each in table.get_symbols() if each.is_referenced() and (is_module or each.is_global())
    )
    for inner in table.get_children():
        yield from _outer_names(inner)

"""Import what a spec names (``pkg.mod:Name``), and only from packages that the user allowed."""

from __future__ import annotations

import importlib
import importlib.machinery
import re
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from graphspec.diagnostics import Span, SpecError
from graphspec.words import closest
from runtime.problems import NO_TEXTS, describe, problem, raised_in, short_path

_PATH = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$")
_PACKAGE = re.compile(r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
_MOST_NAMES = 16
_local: dict[str, str] = {}
"""Modules imported from a spec's directory: top-level name -> that directory."""


def resolve(
    path: str,
    allow: Sequence[str],
    *,
    directory: Path | None,
    span: Span | None,
    texts: Mapping[str, str] = NO_TEXTS,
) -> object:
    """Return the object that ``pkg.mod:Name`` names.

    ``directory`` is the spec's own: modules in it can be imported too, after everything that is installed.
    Raises SpecError: GS201, GS204 not allowed; GS202, GS203 not found; GS205 the import raised; GS236 two modules.
    """
    try:
        return _resolve(path, allow, directory)
    except SpecError as error:
        first = error.diagnostics[0]
        notes, help = first.notes, first.help
        placed = problem(first.code, first.message, span=span, label=first.label, notes=notes, help=help, texts=texts)
        raise placed from error.__cause__


def _resolve(path: str, allow: Sequence[str], directory: Path | None) -> object:
    if _PATH.match(path) is None:
        raise problem("GS202", f"{path!r} is not of the form `package.module:Name`")
    require_allowed({path: None}, allow)
    name, attribute = path.split(":")
    if directory is not None:
        _refuse_two(name.split(".")[0], directory)
    with importable(directory):
        module = _import(name, directory)
    found = _attribute(module, attribute)
    home = getattr(found, "__module__", None) or type(found).__module__
    if not is_allowed(home, allow):
        message = f"{path!r} is defined in {home!r}, which is not allowed"
        help = f"name it where it is defined, or, if you trust it, add: --allow {home.split('.')[0]}"
        raise problem("GS204", message, help=help)
    return found


def require_allowed(
    named: Mapping[str, Span | None], allow: Sequence[str], texts: Mapping[str, str] = NO_TEXTS
) -> None:
    """Raise SpecError (GS201) where some of the paths that a spec names at these places may not be imported.

    It names all of them, and the options that allow them.
    """
    refused = {path: span for path, span in named.items() if not is_allowed(path.split(":")[0], allow)}
    if not refused:
        return
    (first, span), *others = refused.items()
    packages = dict.fromkeys(path.split(":")[0].split(".")[0] for path in refused)
    allowed = ", ".join(sorted(allow)) if allow else "nothing"
    message = f"{first!r} may not be imported: package {next(iter(packages))!r} is not allowed (allowed: {allowed})"
    notes = ["a spec runs code only out of packages that you name"]
    if others:
        lines = [f"  {path!r}{'' if at is None else f' at {at.place}'}" for path, at in others[:_MOST_NAMES]]
        more = [f"  and {len(others) - _MOST_NAMES} more"] if len(others) > _MOST_NAMES else []
        notes.append("\n".join(("it also names:", *lines, *more)))
    options = " ".join(f"--allow {package}" for package in packages)
    help = f"if you trust {'it' if len(packages) == 1 else 'them'}, add: {options}"
    raise problem("GS201", message, span=span, notes=tuple(notes), help=help, texts=texts)


def is_package(name: str) -> bool:
    """Return whether a name can be a package's: words with dots between them."""
    return _PACKAGE.match(name) is not None


def is_allowed(module: str, allow: Sequence[str]) -> bool:
    """Return whether a module is one of the allowed packages or is inside one."""
    return any(module == package or module.startswith(f"{package}.") for package in allow)


@contextmanager
def importable(directory: Path | None) -> Generator[None]:
    """Make the modules of a spec's directory importable within the block, last on the path.

    Last, so that a file of the user's never shadows an installed or standard module that something else imports.
    Modules from the directory of an earlier spec are dropped first: their names mean other files here.
    """
    if directory is None:
        yield
        return
    folder = str(directory.resolve())
    stale = {name for name, home in _local.items() if home != folder}
    for name in [name for name in sys.modules if name.split(".")[0] in stale]:
        del sys.modules[name]
    for name in stale:
        del _local[name]
    importlib.invalidate_caches()
    sys.path.append(folder)
    try:
        yield
    finally:
        for index in range(len(sys.path) - 1, -1, -1):
            if sys.path[index] == folder:
                del sys.path[index]  # the entry that was appended: an equal one that was there before stays
                break
        for name, module in tuple(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if "." not in name and file in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"):
                _local[name] = folder


def _refuse_two(name: str, directory: Path) -> None:
    """Raise GS236 where the spec's directory and the rest of the path both have a module of this name."""
    here = importlib.machinery.PathFinder.find_spec(name, [str(directory.resolve())])
    if here is None or not here.origin:
        return
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)  # without the spec's directory
    there = next((spec for spec in specs if spec is not None), None)
    if there is None or not there.origin:
        return
    if Path(here.origin).resolve() == Path(there.origin).resolve():
        return
    message = f"two modules are called {name!r}: {short_path(here.origin)} and {there.origin}"
    raise problem("GS236", message, help="rename the file next to the spec, so that it is clear which one is meant")


def _import(name: str, directory: Path | None) -> ModuleType:
    """Import a module; raise GS202 where there is none, GS205 with the user's frames where importing it failed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            files = [] if directory is None else sorted(file.stem for file in directory.glob("*.py"))
            near = closest(error.name, files)
            meant = f"; did you mean {near[0]!r}, next to the spec?" if near else ""
            where = "is not installed" if directory is None else "is neither installed nor in the spec's directory"
            help = f"check the name `{name}`, or add the folder that it lies in to PYTHONPATH"
            raise problem("GS202", f"module {error.name!r} {where}{meant}", help=help) from error
        raise _failed(name, error) from error
    except SyntaxError as error:
        place = f"{short_path(error.filename or name)}:{error.lineno}: {(error.text or '').strip()}"
        message = f"module {name!r} is not valid Python: {error.msg}"
        raise problem("GS205", message, notes=(place,), help="correct that line") from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _attribute(module: ModuleType, attribute: str) -> object:
    found: object = module
    for part in attribute.split("."):
        public = [name for name in dir(found) if not name.startswith("_")]
        try:
            found = getattr(found, part)  # a module may make names that `dir` does not list
        except AttributeError as error:
            near = closest(part, public)
            meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            message = f"module {module.__name__!r} has no {attribute!r}{meant}"
            notes = (f"it was read from {short_path(module.__file__)}",) if module.__file__ else ()
            home = module.__name__
            own = [name for name in public if getattr(getattr(module, name, None), "__module__", None) == home]
            has = f"it defines {', '.join(own)}" if 0 < len(own) <= _MOST_NAMES else "check the name after the colon"
            raise problem("GS203", message, notes=notes, help=has) from error
        except Exception as error:
            raise _failed(module.__name__, error) from error
    return found


def _failed(name: str, error: BaseException) -> SpecError:
    help = f"the module must import on its own: try `python -c 'import {name}'` in the folder of the spec"
    return problem("GS205", f"importing {name!r} raised {describe(error)}", notes=raised_in(error), help=help)

"""Rules on options: layers, optimizers and functions of the library take what their tables say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from graphspec.diagnostics import Diagnostic
from graphspec.options import Option, accepts, describe_option, find_option
from graphspec.scheduled import find_values
from graphspec.schedules import ScheduleSpec
from graphspec.scope import Scope
from graphspec.source import Path
from graphspec.suggestions import closest
from graphspec.wording import enumerate_names
from graphspec.words import describe


def check_options(
    scope: Scope, owner: str, options: tuple[Option, ...], given: Mapping[str, object], path: Path
) -> Iterator[Diagnostic]:
    """Compare what is written at a path with a table; ``owner`` is the noun phrase of what has the options."""
    for name, value in given.items():
        option = find_option(options, name)
        if option is None:
            yield _unknown(scope, owner, options, name, path)
        else:
            yield from _check_value(scope, owner, option, value, path)
    names = [option.name for option in options]
    meant = {near for name in given if name not in names for near in closest(name, names, 1)}
    for option in options:
        # One that is there with a slip of the pen is not told a second time.
        if option.required and option.name not in given and option.name not in meant:
            help = f"`{option.name}`: {option.meaning}; {describe_option(option)}"
            yield scope.report("GS114", f"{owner} needs `{option.name}`", path, key=True, help=help)


def _unknown(scope: Scope, owner: str, options: tuple[Option, ...], name: str, path: Path) -> Diagnostic:
    names = tuple(option.name for option in options)
    takes = f"it takes {enumerate_names(names)}" if names else "it takes none"
    if not name:
        return scope.report("GS112", f"{owner} has no options", path, help="write its name alone")
    near = closest(name, names, 1)
    label = f"did you mean '{near[0]}'?" if near else ""
    return scope.report("GS112", f"{owner} has no option '{name}'", (*path, name), key=True, label=label, help=takes)


def _check_value(scope: Scope, owner: str, option: Option, value: object, path: Path) -> Iterator[Diagnostic]:
    if isinstance(value, ScheduleSpec):
        if option.kind == "number" and not option.once:
            yield from _check_schedule(scope, owner, option, value, (*path, option.name))
            return
        message = f"`{option.name}` of {owner} takes no schedule"
        yield scope.report("GS113", message, (*path, option.name), help=f"write {describe_option(option)}")
    elif option.kind == "betas" and _has_schedules(value):
        yield from _check_items(scope, owner, option, cast("Sequence[object]", value), path)
    elif not accepts(option, value):
        message = f"`{option.name}` of {owner}: expected {describe_option(option)}, found {_describe(value)}"
        default = "" if option.required or option.default is None else f" (default {_show(option)})"
        yield scope.report("GS113", message, (*path, option.name), help=f"`{option.name}`: {option.meaning}{default}")


def _has_schedules(value: object) -> bool:
    """Return whether a list holds a schedule."""
    return isinstance(value, list | tuple) and any(
        isinstance(each, ScheduleSpec) for each in cast("Sequence[object]", value)
    )


def _check_items(scope: Scope, owner: str, option: Option, items: Sequence[object], path: Path) -> Iterator[Diagnostic]:
    """Compare a list of numbers, some of which follow schedules, with what the option takes."""
    one = replace(option, kind="number", minimum=0.0, below=1.0)
    plain = tuple(0.0 if isinstance(each, ScheduleSpec) else each for each in items)
    yield from _check_value(scope, owner, option, plain, path)
    for index, each in enumerate(items):
        if isinstance(each, ScheduleSpec):
            yield from _check_schedule(scope, owner, one, each, (*path, option.name, index))


def _check_schedule(
    scope: Scope, owner: str, option: Option, schedule: ScheduleSpec, path: Path
) -> Iterator[Diagnostic]:
    """Compare the values that a schedule begins with, ends with or takes with what the option takes."""
    for value in find_values(schedule):
        if not accepts(option, value.number):
            found = describe(value.number)
            message = f"`{option.name}` of {owner}: expected {describe_option(option)}, found {found}"
            help = f"`{option.name}`: {option.meaning}"
            help = f"{value.origin}: write it; {help}" if value.left_out else help
            yield scope.report("GS113", message, (*path, *value.place), help=help)


def _describe(value: object) -> str:
    """Return what was found; of a list, what in it is no number, or its numbers."""
    if not isinstance(value, list | tuple):
        return describe(value)
    items = cast("Sequence[object]", value)
    others = [item for item in items if isinstance(item, bool) or not isinstance(item, int | float)]
    if others:
        return f"{describe(others[0])} in a list"
    return f"[{', '.join(map(str, items))}]"


def _show(option: Option) -> str:
    match option.default:
        case bool():
            return "true" if option.default else "false"
        case tuple():
            return f"[{', '.join(f'{number:g}' for number in option.default)}]"
        case float():
            return f"{option.default:g}"
        case _:
            return str(option.default)

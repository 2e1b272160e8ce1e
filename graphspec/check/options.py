"""Rules on options: layers, optimizers and functions of the library take what their tables say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from graphspec.analysis.scope import Scope
from graphspec.declare.compat import adapt_options, find_defaults
from graphspec.declare.layers import LAYERS, Layer
from graphspec.declare.ops import UpdateOp
from graphspec.declare.optimizers import OPTIMIZERS, OptimizerSpec
from graphspec.declare.options import Option, accepts, describe_option, find_option
from graphspec.declare.scheduled import find_values
from graphspec.declare.schedules import ScheduleSpec
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.suggestions import closest
from graphspec.words import describe, enumerate_names


def check_options(
    scope: Scope, owner: str, options: tuple[Option, ...], given: Mapping[str, object], path: Path
) -> Iterator[Diagnostic]:
    """Compare the options at a path with a table; ``owner`` is the noun phrase for what has the options."""
    for name, value in given.items():
        option = find_option(options, name)
        if option is None:
            yield _unknown(scope, owner, options, name, path)
        else:
            yield from _check_value(scope, owner, option, value, path)
    names = [option.name for option in options]
    meant = {near for name in given if name not in names for near in closest(name, names, 1)}
    for option in options:
        # A misspelt option is reported as unknown, not as missing too.
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


def check_layers(scope: Scope) -> Iterator[Diagnostic]:
    """Check every layer of every model, the inner ones too."""
    for name, model in scope.spec.models.items():
        yield from _check_list(scope, model.layers or (), ("models", name, "layers"))


def _check_list(scope: Scope, layers: tuple[Layer, ...], path: Path) -> Iterator[Diagnostic]:
    for index, layer in enumerate(layers):
        yield from _check_layer(scope, layer, (*path, index))


def _check_layer(scope: Scope, layer: Layer, path: Path) -> Iterator[Diagnostic]:
    inner = (*path, layer.kind)
    if layer.kind not in LAYERS:
        near = closest(layer.kind, LAYERS, 1)
        label = f"did you mean '{near[0]}'?" if near else ""
        help = "docs/layers.md has all layers" if near else f"the layers are {', '.join(LAYERS)}"
        yield scope.report("GS115", f"no layer is named '{layer.kind}'", inner, key=True, label=label, help=help)
    elif layer.kind == "residual" and not layer.layers:
        help = "write `residual: [{conv2d: {out: 32, kernel: 3, padding: 1}}, relu]`"
        yield scope.report("GS114", "layer `residual` needs a list of layers", inner, key=True, help=help)
    else:
        options = adapt_options(LAYERS[layer.kind], find_defaults(scope.spec.compat, "layer", layer.kind))
        yield from check_options(scope, f"layer `{layer.kind}`", options, layer.options, inner)
        yield from _check_list(scope, layer.layers, inner)


def check_optimizer_options(scope: Scope) -> Iterator[Diagnostic]:
    """Check the options of every built-in optimizer, in models and in updates."""
    for path, optimizer in _find_phases(scope):
        if optimizer.name is not None:
            owner = f"optimizer `{optimizer.name}`"
            defaults = find_defaults(scope.spec.compat, "optimizer", optimizer.name)
            options = adapt_options(OPTIMIZERS[optimizer.name], defaults)
            yield from check_options(scope, owner, options, optimizer.options, path)
            yield from _check_nesterov(scope, optimizer, path)
            yield from _check_dampening(scope, optimizer, path)


def _find_phases(scope: Scope) -> Iterator[tuple[Path, OptimizerSpec]]:
    """Yield every optimizer with its place; of one that changes by epochs each by itself."""
    for path, optimizer in _find_optimizers(scope):
        for epoch, each in optimizer.phases:
            yield (*path, str(epoch)) if optimizer.epochs else path, each


def _find_optimizers(scope: Scope) -> Iterator[tuple[Path, OptimizerSpec]]:
    for name, model in scope.spec.models.items():
        if model.optimizer is not None:
            yield ("models", name, "optimizer"), model.optimizer
    for name, op in scope.sound_ops():
        if isinstance(op, UpdateOp) and op.optimizer is not None:
            yield ("ops", name, "optimizer"), op.optimizer


def _check_nesterov(scope: Scope, optimizer: OptimizerSpec, path: Path) -> Iterator[Diagnostic]:
    """Nesterov's rule is defined for a momentum without dampening only."""
    options = optimizer.resolved()
    if options.get("nesterov") is True and (options["momentum"] == 0 or options["dampening"] != 0):
        help = "add `momentum: 0.9`, and leave `dampening` out"
        yield scope.report("GS113", "`nesterov` needs a momentum and no dampening", (*path, "nesterov"), help=help)


def _check_dampening(scope: Scope, optimizer: OptimizerSpec, path: Path) -> Iterator[Diagnostic]:
    """Refuse a dampening of no momentum, and of one that holds steps: that takes every gradient whole."""
    options = optimizer.resolved()
    if not options.get("dampening"):
        return
    if options["momentum_form"] == "lr_inside":
        help = "leave it out, or `momentum_form`"
        message = "`dampening` goes with `momentum_form: lr_outside`"
        yield scope.report("GS113", message, (*path, "dampening"), help=help)
    elif options["momentum"] == 0:
        help = "leave it out, or add `momentum: 0.9`"
        yield scope.report("GS113", "`dampening` is of a momentum: there is none", (*path, "dampening"), help=help)

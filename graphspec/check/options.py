"""Rules on options: layers, optimizers and functions of the library take what their tables say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from graphspec.analysis.scope import RuleContext
from graphspec.declare.compat import adapt_options, find_defaults
from graphspec.declare.layers import HOLDING, LAYERS, Layer
from graphspec.declare.ops import UpdateOp
from graphspec.declare.optimizers import OPTIMIZERS, OptimizerSpec
from graphspec.declare.options import Option, accepts, describe_option, find_option, find_remedy
from graphspec.declare.schedules import ScheduleSpec, find_values
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import closest, describe, did_you_mean, enumerate_names

NO_REMEDIES: Mapping[str, str] = {}


def check_options(
    scope: RuleContext,
    owner: str,
    options: tuple[Option, ...],
    given: Mapping[str, object],
    path: Path,
    remedies: Mapping[str, str] = NO_REMEDIES,
) -> Iterator[Diagnostic]:
    """Compare the options at a path with a table; ``owner`` is the noun phrase for what has the options.

    ``remedies`` say what to do about options that others have.
    """
    names, meant = tuple(option.name for option in options), set[str]()
    for name, value in given.items():
        option = find_option(options, name)
        if option is not None:
            yield from _check_value(scope, owner, option, value, path)
        elif name:
            meant.update(closest(name, names, 1))
            takes = f"it takes {enumerate_names(names)}" if names else "it takes none"
            message, label = f"{owner} has no option '{name}'", did_you_mean(name, names)
            help = remedies.get(name, takes)
            yield scope.report("GS112", message, (*path, name), key=True, label=label, help=help)
        else:
            yield scope.report("GS112", f"{owner} has no options", path, help="write its name alone")
    for option in options:
        # A misspelt option is reported as unknown, not as missing too.
        if option.required and option.name not in given and option.name not in meant:
            help = f"`{option.name}`: {option.meaning}; {describe_option(option)}"
            yield scope.report("GS114", f"{owner} needs `{option.name}`", path, key=True, help=help)


def _check_value(scope: RuleContext, owner: str, option: Option, value: object, path: Path) -> Iterator[Diagnostic]:
    place = (*path, option.name)
    is_list = isinstance(value, list | tuple)
    items = cast("Sequence[object]", value) if is_list else ()
    if isinstance(value, ScheduleSpec) and option.kind == "number" and not option.once:
        yield from _check_schedule(scope, owner, option, value, place)
    elif isinstance(value, ScheduleSpec):
        message = f"`{option.name}` of {owner} takes no schedule"
        yield scope.report("GS113", message, place, help=f"write {describe_option(option)}")
    elif option.kind == "betas" and not option.once and any(isinstance(each, ScheduleSpec) for each in items):
        # Each schedule is compared with what one of the numbers may be, and the others with 0 in its place.
        plain = tuple(0.0 if isinstance(each, ScheduleSpec) else each for each in items)
        yield from _check_value(scope, owner, option, plain, path)
        one = replace(option, kind="number", minimum=0.0, below=1.0)
        for index, each in enumerate(items):
            if isinstance(each, ScheduleSpec):
                yield from _check_schedule(scope, owner, one, each, (*place, index))
    elif not accepts(option, value):
        found = describe(value)
        if is_list:
            others = [item for item in items if isinstance(item, bool) or not isinstance(item, int | float)]
            found = f"{describe(others[0])} in a list" if others else f"[{', '.join(map(str, items))}]"
        match option.default:
            case bool():
                default = "true" if option.default else "false"
            case tuple():
                default = f"[{', '.join(f'{number:g}' for number in option.default)}]"
            case float():
                default = f"{option.default:g}"
            case _:
                default = str(option.default)
        default = "" if option.required or option.default is None else f" (default {default})"
        message = f"`{option.name}` of {owner}: expected {describe_option(option)}, found {found}"
        help = find_remedy(option, value) or f"`{option.name}`: {option.meaning}{default}"
        if isinstance(value, str) and (name := value.removeprefix("$")) in scope.spec.vars:
            help = f'a variable is written `"${{{name}}}"`'
        yield scope.report("GS113", message, place, help=help)


def _check_schedule(
    scope: RuleContext, owner: str, option: Option, schedule: ScheduleSpec, path: Path
) -> Iterator[Diagnostic]:
    """Compare the values that a schedule begins with, ends with or takes with what the option takes."""
    for value in find_values(schedule):
        if not accepts(option, value.number):
            found = describe(value.number)
            message = f"`{option.name}` of {owner}: expected {describe_option(option)}, found {found}"
            help = f"`{option.name}`: {option.meaning}"
            help = f"{value.origin}: write it; {help}" if value.left_out else help
            yield scope.report("GS113", message, (*path, *value.place), help=help)


def check_layers(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check every layer of every model, the inner ones too."""
    for name, model in scope.spec.models.items():
        yield from _check_layers(scope, model.layers or (), ("models", name, "layers"))


def _check_layers(scope: RuleContext, layers: tuple[Layer, ...], path: Path) -> Iterator[Diagnostic]:
    for index, layer in enumerate(layers):
        inner = (*path, index, layer.kind)
        if layer.kind not in LAYERS:
            label = did_you_mean(layer.kind, LAYERS)
            help = "docs/layers.md has all layers" if label else f"the layers are {', '.join(LAYERS)}"
            yield scope.report("GS115", f"no layer is named '{layer.kind}'", inner, key=True, label=label, help=help)
        elif layer.kind in HOLDING and not layer.layers:
            rest = ", relu" if layer.kind == "residual" else ""
            help = f"write `{layer.kind}: [{{conv2d: {{out: 32, kernel: 3, padding: 1}}}}{rest}]`"
            yield scope.report("GS114", f"layer `{layer.kind}` needs a list of layers", inner, key=True, help=help)
        else:
            options = adapt_options(LAYERS[layer.kind], find_defaults(scope.spec.compat, "layer", layer.kind))
            yield from check_options(scope, f"layer `{layer.kind}`", options, layer.options, inner)
            yield from _check_layers(scope, layer.layers, inner)


def check_optimizers(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that every model an update steps has an optimizer, unless the update brings its own."""
    for name, op in scope.sound_ops():
        if not isinstance(op, UpdateOp) or op.optimizer is not None:
            continue
        for index, target in enumerate(op.update):
            model, entry = scope.spec.models.get(target), scope.find(target)
            if model is not None and model.optimizer is None and target not in scope.broken:
                where = "" if entry is None else scope.place(entry)
                message = f"op '{name}' updates model '{target}'{where}, which has no optimizer"
                help = f"write `optimizer: adam` in model '{target}', or in this update"
                yield scope.report("GS107", message, ("ops", name, "update", index), help=help)


def check_optimizer_options(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check the options of every built-in optimizer, in models and in updates; of one by epochs each by itself."""
    given: dict[Path, OptimizerSpec | None] = {
        ("models", name, "optimizer"): model.optimizer for name, model in scope.spec.models.items()
    }
    given |= {("ops", name, "optimizer"): op.optimizer for name, op in scope.sound_ops() if isinstance(op, UpdateOp)}
    given |= {
        ("models", name, "groups", index, "optimizer"): group.optimizer
        for name, model in scope.spec.models.items()
        for index, group in enumerate(model.groups)
    }
    phases = [
        ((*whole_path, str(epoch)) if whole.epochs else whole_path, each)
        for whole_path, whole in given.items()
        if whole is not None
        for epoch, each in whole.phases
    ]
    lazy = [rule for rule, options in OPTIMIZERS.items() if find_option(options, "sparse") is not None]
    remedies = {"sparse": f"leave it out, and all rows are stepped; {enumerate_names(lazy)} can be lazy"}
    for path, optimizer in phases:
        if optimizer.name is None:
            continue
        defaults = find_defaults(scope.spec.compat, "optimizer", optimizer.name)
        table = adapt_options(OPTIMIZERS[optimizer.name], defaults)
        owner = f"optimizer `{optimizer.name}`"
        yield from check_options(scope, owner, table, optimizer.options, path, remedies)
        options = optimizer.resolved()
        dampening = options.get("dampening")
        # Nesterov's rule is defined for a momentum without dampening only.
        if options.get("nesterov") is True and (options["momentum"] == 0 or dampening):
            help = "add `momentum: 0.9`, and leave out `dampening`"
            yield scope.report("GS113", "`nesterov` needs a momentum and no dampening", (*path, "nesterov"), help=help)
        # A momentum that holds steps takes every gradient whole.
        if dampening and options["momentum_form"] == "lr_inside":
            message = "`dampening` needs `momentum_form: lr_outside`"
            help = "leave it out, or `momentum_form`"
            yield scope.report("GS113", message, (*path, "dampening"), help=help)
        elif dampening and options["momentum"] == 0:
            help = "leave it out, or add `momentum: 0.9`"
            yield scope.report(
                "GS113", "`dampening` needs a momentum, and there is none", (*path, "dampening"), help=help
            )


def check_group_optimizers(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that what steps a model can step its groups: a rule of their own, or a weight decay of theirs."""
    stepped = [(name, op) for _, op in scope.sound_ops() if isinstance(op, UpdateOp) for name in op.update]
    for name, op in stepped:
        model = scope.spec.models.get(name)
        whole = None if model is None else op.optimizer or model.optimizer
        if model is None or whole is None:
            continue
        tables = {each.name: OPTIMIZERS[each.name] for _, each in whole.phases if each.name is not None}
        undecayed = [each for each, options in tables.items() if find_option(options, "weight_decay") is None]
        dividing = [each for each, options in tables.items() for option in options[:1] if option.above is not None]
        for index, group in enumerate(model.groups):
            path = ("models", name, "groups", index)
            if group.weight_decay is not None and undecayed:
                message = f"optimizer `{undecayed[0]}` has no option 'weight_decay', which a group would change"
                help = "remove it, or choose another rule"
                yield scope.report("GS112", message, (*path, "weight_decay"), key=True, help=help)
            scale = group.lr_scale
            scales = [each.number for each in find_values(scale)] if isinstance(scale, ScheduleSpec) else [scale]
            if dividing and 0 in scales:
                message = f"`lr_scale` of a group: optimizer `{dividing[0]}` divides by its rate, found 0"
                help = "write `frozen: true` for what nothing steps"
                yield scope.report("GS113", message, (*path, "lr_scale"), key=True, help=help)
            if group.optimizer is not None and whole.epochs:
                message = f"the optimizer of '{name}' changes by epochs, and a group has one of its own"
                help = "write one optimizer for the others, with a schedule of `lr`"
                yield scope.report("GS056", message, (*path, "optimizer"), key=True, help=help)
            if group.optimizer is not None and op.shared is not None:
                message = f"an update shares parameters of '{name}' (`shared`), and a group has its own optimizer"
                help = "remove it, or update all in one update"
                yield scope.report("GS056", message, (*path, "optimizer"), key=True, help=help)

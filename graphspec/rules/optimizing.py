"""Rules on optimizers: the options of the built-in rules, and values that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.compat import adapt_options, find_defaults
from graphspec.diagnostics import Diagnostic
from graphspec.ops import UpdateOp
from graphspec.optimizers import OPTIMIZERS, OptimizerSpec
from graphspec.rules.options import check_options
from graphspec.scope import Scope
from graphspec.source import Path


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
        help = "write `momentum: 0.9` beside it, and leave `dampening` out"
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
        help = "leave it out, or write `momentum: 0.9` beside it"
        yield scope.report("GS113", "`dampening` is of a momentum: there is none", (*path, "dampening"), help=help)

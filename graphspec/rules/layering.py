"""Rules on built-in layers: their kinds and options."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.compat import adapt_options, find_defaults
from graphspec.diagnostics import Diagnostic
from graphspec.layers import LAYERS, Layer
from graphspec.rules.options import check_options
from graphspec.scope import Scope
from graphspec.source import Path
from graphspec.suggestions import closest


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

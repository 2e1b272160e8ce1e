"""Penalties and constraints of Keras's layers: those a spec can say act in the updates, the others are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from compiler import NO_TERMS, OwnTerms
from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.declare.parameters import ConstraintSpec, RegularizerSpec
from graphspec.diagnostics import Diagnostic
from runtime.backends.tensorflow.compat import added_losses
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.modules import KerasVariable, Named, walk
from runtime.engine.load import find_span

OUTPUT = (
    "return it as a second result of the model (`outputs: [y, extra]`) and add it to the loss: "
    "`{call: add, inputs: [loss, extra]}`"
)


def find_terms(model: Any) -> OwnTerms:
    """Return the penalties and constraints of the trained variables of a model, one for all variables with the same."""
    penalties: dict[tuple[float, float], list[str]] = {}
    constraints: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for name, variable in _find_trained(model):
        penalty, constraint = _read_penalty(variable), _read_constraint(variable)
        if penalty is not None and any(penalty):
            penalties.setdefault(penalty, []).append(name)
        if constraint is not None:
            constraints.setdefault(tuple(constraint.items()), []).append(name)
    return OwnTerms(
        regularizers=tuple(
            RegularizerSpec(l1=l1 or None, l2=l2 or None, match=_match(names)) for (l1, l2), names in penalties.items()
        ),
        constraints=tuple(ConstraintSpec(**dict(key), match=_match(names)) for key, names in constraints.items()),
    )


def find_unknown_terms(models: Mapping[str, Any], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS274) for what trained models add to losses or do to weights that no step would take over."""
    trained = [each.name for each in program.models if each.trained and each.name in models]
    owners: dict[int, str] = {}
    for name in trained:
        for path, variable in _find_trained(models[name]):
            owner = owners.setdefault(id(variable), name)
            if owner != name and _parts(variable)[0] is not None:  # each model would add the penalty
                message = (
                    f"models '{owner}' and '{name}' share the variable '{path}', which has a regularizer of its own"
                )
                help = "remove it from the layer, and write `regularizer` on one of the models"
                yield Diagnostic(code="GS274", message=message, span=find_span(spec, name), help=help)
    for name in trained:
        for what, help in _find_unknown(models[name]):
            yield Diagnostic(code="GS274", message=f"model '{name}': {what}", span=find_span(spec, name), help=help)
        if spec.models[name].class_ is None and find_terms(models[name]) != NO_TERMS:
            message = f"model '{name}': the model passed in its place has its own penalties or constraints"
            help = "declare the model by `class:`, whose own terms are taken over, or write them in the spec"
            yield Diagnostic(code="GS274", message=message, span=find_span(spec, name), help=help)


def _find_unknown(model: Any) -> Iterator[tuple[str, str]]:
    """Yield what of a model no spec can say, with the remedy."""
    for name, variable in _find_trained(model):
        regularizer, constraint = _parts(variable)
        if regularizer is not None and _read_penalty(variable) is None:
            yield _tell_function(name, "regularizer", regularizer)
        if constraint is not None and _read_constraint(variable) is None:
            yield _tell_function(name, "constraint", constraint)
    for layer in layers_of(model, set()):
        if getattr(layer, "activity_regularizer", None) is not None:
            what = f"its layer '{layer.name}' has an `activity_regularizer`, which only `fit` of Keras adds to a loss"
            yield what, OUTPUT


def find_adding(model: Any) -> Iterator[str]:
    """Yield the names of the layers that called `add_loss` in the last call of a model."""
    yield from (layer.name for layer in layers_of(model, set()) if added_losses(layer))


def tell_added(adding: Mapping[str, str], program: Program, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS274) for every trained model of which a layer called `add_loss`: layers by model."""
    for name in (each.name for each in program.models if each.trained and each.name in adding):
        what = f"its layer '{adding[name]}' calls `add_loss`, which only `fit` of Keras adds to a loss"
        yield Diagnostic(code="GS274", message=f"model '{name}': {what}", span=find_span(spec, name), help=OUTPUT)


def _tell_function(name: str, field: str, found: Any) -> tuple[str, str]:
    """Return what is said of a term that is code, and the remedy."""
    kind = getattr(found, "__name__", type(found).__name__)
    what = f"the {field} of its variable '{name}' ({kind}) is not one that a spec has"
    written = f"`{field}: {{function: \"pkg.mod:fn\", match: '{_match([name])}'}}`"
    return what, f"remove it from the layer and write on the model: {written}"


def _find_trained(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trained variables of a user's model by name, as Keras has them where they are Keras's."""
    if not isinstance(model, Named):
        for name, part in walk(model, "", set()):
            if isinstance(part, (tf.Variable, KerasVariable)) and part.trainable:
                yield name, part


def _parts(variable: Any) -> tuple[Any, Any]:
    """Return the regularizer and the constraint of a variable; plain ones of TensorFlow may have a constraint."""
    return getattr(variable, "regularizer", None), getattr(variable, "constraint", None)


def _read_penalty(variable: Any) -> tuple[float, float] | None:
    """Return the factors (l1, l2) of a variable's regularizer; None where it has none, or one that is code."""
    regularizer, _ = _parts(variable)
    kinds = tf.keras.regularizers.L1, tf.keras.regularizers.L2, tf.keras.regularizers.L1L2
    if type(regularizer) not in kinds:
        return None
    return float(getattr(regularizer, "l1", 0.0)), float(getattr(regularizer, "l2", 0.0))


def _read_constraint(variable: Any) -> dict[str, Any] | None:
    """Return the fields of a variable's constraint; None where it has none, or one that is code."""
    _, constraint = _parts(variable)
    kinds = tf.keras.constraints
    if type(constraint) is kinds.NonNeg:
        return {"non_negative": True}
    if type(constraint) is kinds.UnitNorm:
        return {"unit_norm": True, "axis": _read_axis(constraint.axis)}
    if type(constraint) is kinds.MaxNorm and constraint.max_value > 0:
        return {"max_norm": float(constraint.max_value), "axis": _read_axis(constraint.axis)}
    return None


def _read_axis(axis: Any) -> Any:
    """Return an axis, or several, that can be a key."""
    return axis if isinstance(axis, int) else tuple(axis)


def _match(names: list[str]) -> str:
    """Return the pattern that fits some names, and no others."""
    listed = [re.escape(name).replace(r"\.", "[.]") for name in names]
    return f"^{listed[0]}$" if len(listed) == 1 else f"^({'|'.join(listed)})$"

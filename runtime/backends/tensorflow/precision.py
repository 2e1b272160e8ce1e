"""Precision: the types in which models should compute, and which of them do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from compiler.ir.program import Program
from graphspec.declare.precision import Compute
from runtime.backends.tensorflow.library.copies import layers_of
from runtime.backends.tensorflow.library.modules import KerasModel
from runtime.backends.tensorflow.tensors import DTYPES


@runtime_checkable
class KerasComputing(Protocol):
    """The interface of a Keras layer that has a compute type."""

    compute_dtype: str
    variables: Any


@runtime_checkable
class Computing(Protocol):
    """The interface of a model of built-in layers with a compute type, in any emitted module."""

    compute: Any

    def compute_in(self, dtype: Any) -> None:
        """Compute products in a type from now on."""


def computing(compute: Compute) -> tf.DType | None:
    """Return the type in which a model computes; None where it is that of its parameters."""
    return None if compute == "float32" else DTYPES[compute]


def describe_others(models: Mapping[str, Any], program: Program, dtype: tf.DType) -> Iterator[str]:
    """Yield a note on every model that does not compute in the type of the spec, but as its code does."""
    for declared in program.models:
        wanted = computing(declared.compute)
        if wanted is not None and dtype != tf.float64 and wanted.name not in _find_types(models[declared.name]):
            yield (
                f"'{declared.name}' computes as it is written, not in {declared.compute}: `precision` is for "
                "`layers:` and for layers of Keras that `class:` makes without a type of their own"
            )


def _find_types(model: Any) -> frozenset[str]:
    """Return the types in which parts of a model compute, as far as they declare them."""
    if isinstance(model, Computing):
        return frozenset({model.compute.name} if model.compute is not None else ())
    layers = (each for each in layers_of(model, set()) if isinstance(each, KerasComputing) and each.variables)
    return frozenset(each.compute_dtype for each in layers if not (isinstance(each, KerasModel) and each.layers))

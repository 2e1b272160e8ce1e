"""Types of models that are there: their parameters are of the type of the step, or the build ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from runtime.building.diagnosis import tell_finding
from runtime.support.model_errors import ModelError
from runtime.support.model_types import require_types


def find_other_types(models: Mapping[str, Mapping[str, str]], dtype: str, spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem (GS208) for every model with parameters, type by name, that the step cannot train as they are."""
    for name, found in models.items():
        try:
            require_types(name, found, dtype)
        except ModelError as error:
            yield tell_finding(error, spec)

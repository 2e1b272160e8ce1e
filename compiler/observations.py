"""What a backend saw of the models a plan may not look at, to compile again with the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler.shapes import TensorType
from graphspec.constraints import ConstraintSpec
from graphspec.regularizers import RegularizerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The traits of one model, as seen: buffers, random draws, coupled samples, forwards that are recomputed."""

    buffers: bool
    rng: bool
    batch_coupled: bool
    recomputes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTerms:
    """The penalties and constraints that a model brings along, as layers of Keras do, beside those of the spec."""

    regularizers: tuple[RegularizerSpec, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()


NO_TERMS = OwnTerms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Everything seen: traits by model, the types of values by name, and which losses count by themselves."""

    models: Mapping[str, Observed] = field(default_factory=dict[str, Observed])
    outputs: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    counts: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """User's loss -> whether it returns (sum, count)."""
    terms: Mapping[str, OwnTerms] = field(default_factory=dict[str, OwnTerms])
    """Model -> what it brings along."""

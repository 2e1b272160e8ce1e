"""The setting of a build: where and how a plan is built, and the models that are made there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, cast

from msgspec import Struct

from compiler import Plan
from graphspec.declare.graph import GraphSpec
from runtime.codegen.resources import Extras
from runtime.engine.backend import BuildRequest
from runtime.engine.errors import Framework, call_checked
from runtime.engine.load import Loaded
from runtime.engine.user_models import import_users
from runtime.engine.weights import WeightFiles, find_files, place_files

D = TypeVar("D")
T = TypeVar("T")
M = TypeVar("M")
Made = TypeVar("Made")


class Setting(Struct, Generic[D, T, M], frozen=True, kw_only=True):
    """Where and how a plan is built: the models in ``given`` are used in place of those declared."""

    device: D
    dtype: T
    seed: int
    given: Mapping[str, M]
    weights: WeightFiles
    extras: Extras
    jit_compile: bool

    @classmethod
    def of(cls, plan: Plan, request: BuildRequest, *, device: D, dtype: T, given: Mapping[str, M]) -> Setting[D, T, M]:
        """Return the setting of a request, and import the user's classes and functions that the plan names.

        Raises SpecError with every import that failed, and GS271 for every file that cannot be read.
        """
        import_users(plan.program, plan.spec, request)
        return cls(
            device=device,
            dtype=dtype,
            seed=request.seed,
            given=given,
            weights=find_files(plan.program, plan.spec, request),
            extras=Extras(norms=request.norms, profile=request.profile),
            jit_compile=request.jit_compile,
        )

    @property
    def place(self) -> tuple[int, D, T]:
        """Return the first arguments of a module's ``build`` and ``make_models``: seed, device and type."""
        return self.seed, self.device, self.dtype


def make_models(
    loaded: Loaded[Made],
    spec: GraphSpec,
    framework: Framework,
    setting: Setting[D, T, M],
    given: Mapping[str, M],
    late: Iterable[str] = (),
) -> Made:
    """Return the models of an executed module by name: the given ones, and those that it makes.

    The files of the models in ``late`` are left to be read later. Raises StepError where a class fails.
    """
    place_files(cast("Loaded[object]", loaded), setting.weights, late)
    return call_checked(loaded, spec, framework, "make_models", *setting.place, given)

"""Names of functions: one of the library, a user's ``pkg.mod:fn``, or one per backend."""

from __future__ import annotations

from typing import cast

from pydantic import model_validator

from graphspec.declare.base import Declaration, below, problem
from graphspec.declare.fields import is_path
from graphspec.declare.library import FUNCTIONS, Family, find_other_names


class PerBackend(Declaration):
    """One name for every backend, or one per backend: ``{torch: pkg.mod:a, tensorflow: pkg.mod:b}``."""

    torch: str | None = None
    """What the PyTorch backend uses, as `pkg.mod:Name`."""
    tensorflow: str | None = None
    """What the TensorFlow backend uses, as `pkg.mod:Name`."""

    @model_validator(mode="before")
    @classmethod
    def _spread(cls, value: object) -> object:
        match value:
            case str():
                return {"torch": value, "tensorflow": value}
            case bool() | int() | float() | list() | None:
                raise problem("GS054", "expected a name, or a mapping from backends to names")
            case _:
                return value

    def find(self, backend: str) -> str | None:
        """Return the name for a backend, or None where the spec gives it none."""
        return {"torch": self.torch, "tensorflow": self.tensorflow}.get(backend)

    @property
    def given(self) -> tuple[str, ...]:
        """Return the distinct names, as written."""
        return tuple(dict.fromkeys(name for name in (self.torch, self.tensorflow) if name is not None))


class ClassName(PerBackend):
    """The import path of a user's class, for every backend or per backend."""

    @model_validator(mode="after")
    def _check_class(self) -> ClassName:
        _require_paths(self, "class", "zoo.gan:Generator")
        return self


class FunctionName(PerBackend):
    """A function: a name of the library (``bce``), a user's ``pkg.mod:fn``, or one path per backend."""

    @model_validator(mode="after")
    def _check_function(self) -> FunctionName:
        if not self.is_builtin:
            _require_paths(self, "function", "losses:focal")
        return self

    @property
    def is_builtin(self) -> bool:
        """Return whether this is a name of the library, the same on every backend."""
        return self.torch is not None and self.torch == self.tensorflow and ":" not in self.torch

    def name(self, backend: str) -> str:
        """Return the name for a backend; raise LookupError where the spec gives it none (``find`` asks first)."""
        found = self.find(backend)
        if found is None:
            raise LookupError(f"no function for backend {backend!r}")
        return found


def read_options(written: object, family: Family) -> object:
    """Return an op as written, with the options of a function of the library under their own names.

    Raises a validation error with code GS053 where one is written under two names.
    """
    fields = cast("dict[str, object]", written) if isinstance(written, dict) else {}
    name, args = fields.get(family), fields.get("args")
    signature = FUNCTIONS[family].get(name) if isinstance(name, str) else None
    if signature is None or not isinstance(args, dict):
        return cast("object", written)
    others, found = find_other_names(signature), dict[str, object]()
    for key, value in cast("dict[str, object]", args).items():
        own = others.get(key, key)
        if own in found:
            help = f"they are two names of `{own}`; keep one"
            raise below(("args", key), problem("GS053", f"`{key}` repeats another key", help=help, at="key"))
        found[own] = value
    return {**fields, "args": found}


def _require_paths(named: PerBackend, what: str, example: str) -> None:
    """Refuse names that are not import paths."""
    if not named.given:
        raise problem("GS054", f"no {what} is named", help="give at least one of `torch` and `tensorflow`")
    for name in named.given:
        if not is_path(name):
            help = f"write `pkg.mod:Name`, as in `{example}`"
            raise problem("GS054", f"expected the path of a {what}, found {name!r}", help=help)

"""The base class of everything a document declares, and the ways a declaration refuses what it is given."""

from __future__ import annotations

from typing import Literal, LiteralString

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Declaration(BaseModel):
    """Hold one part of a spec: frozen, closed to unknown keys, and without conversions between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


def problem(
    code: LiteralString, message: str, *, help: str = "", label: str = "", at: Literal["key", "value"] = "value"
) -> PydanticCustomError:
    """Return the error of a validator; ``code`` becomes the diagnostic's code, ``at`` says which span it points to."""
    return PydanticCustomError(code, "{message}", {"message": message, "help": help, "label": label, "at": at})


def below(path: tuple[str | int, ...], error: PydanticCustomError, found: object = None) -> ValidationError:
    """Return an error as that of a part of what a validator is given: of the value at a path below it."""
    return ValidationError.from_exception_data("spec", [InitErrorDetails(type=error, loc=path, input=found)])


def not_built(
    what: str, *, help: str = "remove it; nothing in this version reads it", at: Literal["key", "value"] = "key"
) -> PydanticCustomError:
    """Return the error for a part of the language that this version does not execute."""
    message = f"{what} is part of the language but not built yet"
    return PydanticCustomError("not_built", "{message}", {"message": message, "help": help, "label": "", "at": at})

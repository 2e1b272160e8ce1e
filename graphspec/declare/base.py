"""The base class of everything a document declares, and the ways a declaration refuses what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, LiteralString, TypeVar, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import CoreSchema, definitions_schema, no_info_plain_validator_function


class Declaration(BaseModel):
    """Hold one part of a spec: frozen, closed to unknown keys, and without conversions between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


@dataclass(frozen=True)
class Reader:
    """The annotation of a field that a function reads; ``form`` is the type of what documents write, for their schema.

    As pydantic's which also builds a validator of the form and a serializer, and nothing calls these.
    """

    read: Callable[[object], object]
    form: object = None

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return what calls the function."""
        return no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of the form."""
        return _describe(self.form, handler)


class _Deferral:
    """The annotation of a declaration that is read by a validator of its own, built for its first value."""

    def __get_pydantic_core_schema__(self, kind: type[Declaration], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return what calls that validator."""
        return no_info_plain_validator_function(kind.model_validate, metadata={_KIND: kind})

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema of the declaration."""
        return _describe(schema.get("metadata", {})[_KIND], handler)


_KIND = "declaration"
_Kind = TypeVar("_Kind", bound=Declaration)
Deferred = Annotated[_Kind, _Deferral()]
"""A declaration as the type of a field.

The validator of its owner is built without it, and most specs have few of the parts that they could have.
"""


def _describe(form: object, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    """Return the JSON Schema of a type; that of a declaration is a definition, which others refer to."""
    return handler(definitions_schema(TypeAdapter(cast("type", form)).core_schema, []))


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

"""Turn pydantic's validation errors into diagnostics: at the right place, in the words of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import UnionType
from typing import Annotated, Union, cast, get_args, get_origin

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, Tag, ValidationError

from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.diagnostics import Diagnostic, Span, sort_diagnostics
from graphspec.limits import MOST_PROBLEMS
from graphspec.read.builder import Path, Plain
from graphspec.read.scalars import OutOfRangeError, resolve
from graphspec.read.source import Document
from graphspec.words import closest, describe, did_you_mean, enumerate_words, fix_key, quote, spell_path

_TYPES: tuple[tuple[str, str], ...] = (
    ("float_", "a number"),
    ("decimal_", "a number"),
    ("int_", "a whole number"),
    ("bool_", "true or false"),
    ("string_type", "a string"),
    ("string_sub_type", "a string"),
    ("list_", "a list"),
    ("tuple_", "a list"),
    ("set_", "a list"),
    ("frozen_set_", "a list"),
    ("iterable_type", "a list"),
    ("dict_", "a mapping"),
    ("mapping_", "a mapping"),
    ("model_", "a mapping"),
    ("dataclass_", "a mapping"),
    ("none_required", "null"),
)
_CONSTRAINTS: Mapping[str, str] = {
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "too_short": "{min_length} or more items",
    "too_long": "{max_length} or fewer items",
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string like {pattern}",
    "union_tag_invalid": "one of the kinds {expected_tags}",
}
_CHOICE = re.compile(r"'((?:[^'\\]|\\.)*)'|[^\s',]+")
_LONGEST = 40
_FORMS: Mapping[str, str] = {
    "a number": "write a number as in `0.5`, `3` or `1e-3`",
    "a whole number": "write a whole number as in `100`",
    "true or false": "write true or false",
    "a string": "write one name or text",
    "a list": "a list is written `[a, b]`, or with `- ` before each item",
    "a mapping": "a mapping is written `{key: value}`, or with one `key: value` to a line",
}
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "a number": (int, float),
    "a whole number": (int,),
    "true or false": (bool,),
    "a string": (str,),
    "a mapping": (dict,),
}
_OLD_BOOLEANS = ("yes", "no", "on", "off", "y", "n")


class Trace(Struct, frozen=True, kw_only=True):
    """Where a location leads: a path of the document, the branches of unions on the way, and the types that end it."""

    path: Path
    data: Plain
    types: tuple[object, ...]
    branches: tuple[tuple[Path, str], ...] = ()

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """Return the classes that may declare what is at the path."""
        members = (member for annotation in self.types for _, member in _find_members(annotation))
        return tuple(member for member in members if isinstance(member, type) and issubclass(member, BaseModel))


def trace(location: Path, root: type[BaseModel], data: Plain) -> Trace:
    """Follow a location of pydantic's from the document's root; what leads nowhere in it is left out of the path.

    Such locations go through classes: in addition to keys and indices they name branches of unions, and fields that a
    validator made of other keys. Neither is in the document.
    """
    found = Trace(path=(), data=data, types=(root,))
    for part in location:
        members = [pair for annotation in found.types for pair in _find_members(annotation)]
        match found.data:
            case dict() if isinstance(part, str) and part in found.data:
                below = [found.data[part]]
            case list() if isinstance(part, int) and 0 <= part < len(found.data):
                below = [found.data[part]]
            case _:
                below = []
        is_union = len(members) > 1
        chosen = tuple(member for label, member in members if is_union and label == part)
        if chosen or (is_union and not below):
            # A step into a branch of a union, not into what a collection holds.
            branches = (*found.branches, (found.path, str(part)))
            found = replace(found, types=chosen or found.types, branches=branches)
            continue
        types = tuple(inner for _, member in members for inner in _find_inner(member, part))
        if below:
            found = replace(found, path=(*found.path, part), data=below[0], types=types)
        else:
            found = replace(found, types=types or found.types)
    return found


def _find_members(annotation: object) -> list[tuple[str, object]]:
    """Return the branches of a type with the labels that locations have for them; None is no branch."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        tags = [item.tag for item in arguments[1:] if isinstance(item, Tag)]
        return [(tags[0], arguments[0])] if tags else _find_members(arguments[0])
    if origin in (Union, UnionType):
        return [member for argument in arguments if argument is not type(None) for member in _find_members(argument)]
    return [(annotation.__name__ if isinstance(annotation, type) else str(annotation), annotation)]


def _find_inner(annotation: object, part: str | int) -> list[object]:
    """Return the types of what a collection or model holds under a key or index."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields.items()
        return [field.annotation for name, field in fields if part in (name, field.alias, field.validation_alias)]
    if not isinstance(origin, type) or not arguments:
        return []
    if issubclass(origin, (dict, Mapping)):
        return [arguments[-1]]
    if not issubclass(origin, (list, tuple, Sequence)) or not isinstance(part, int):
        return []
    is_fixed = issubclass(origin, tuple) and Ellipsis not in arguments
    return [arguments[part]] if is_fixed and part < len(arguments) else [arguments[0]]


class Detail(Struct, frozen=True, kw_only=True):
    """What pydantic reports about one error."""

    kind: str
    location: Path
    message: str
    found: object
    context: Mapping[str, object]

    @classmethod
    def read(cls, detail: Mapping[str, object]) -> Detail:
        """Return the detail in one of pydantic's dictionaries."""
        context = cast("Mapping[str, object]", detail.get("ctx", {}))
        location = cast("Path", detail["loc"])
        kind, found = str(detail["type"]), detail.get("input")
        discriminator = str(context.get("discriminator", ""))
        if discriminator.startswith("'"):
            # An error about the tag of a union is a wrong choice, or a missing key.
            location = (*location, discriminator.strip("'"))
            is_missing = kind == "union_tag_not_found"
            kind = "missing" if is_missing else "literal_error"
            if not is_missing:
                found, context = context["tag"], {"expected": context["expected_tags"]}
        return cls(kind=kind, location=location, message=str(detail["msg"]), found=found, context=context)

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed values of an error about one of several, as they are written."""
        if self.kind not in ("literal_error", "enum"):
            return ()
        return tuple(
            found.group() for found in _CHOICE.finditer(str(self.context["expected"])) if found.group() != "or"
        )

    @property
    def expected_type(self) -> str | None:
        """Return the type that was expected, or None where the type is not what is wrong."""
        if self.kind == "string_type" or not self.kind.startswith("string_"):
            return next((words for start, words in _TYPES if self.kind.startswith(start)), None)
        return None


def _find_remedy(expected: str, found: object) -> str:
    """Return what to write instead of a value of the wrong type, where the mistake is a common one."""
    remedy = ""
    match found:
        case None:
            remedy = "leave out the key, or give it a value"
        case bool() | int() | float() if expected == "a string":
            remedy = "put it between quotes"
        case bool() | int() | float() | str() if expected == "a list":
            is_short = len(str(found)) <= _LONGEST and "(" not in str(found)
            remedy = f"write a list: `[{found}]`" if is_short else "write a list between square brackets"
        case dict() if expected == "a list":
            remedy = "put brackets around it to make a list of one"
        case list():
            items = cast("list[object]", found)
            if len(items) == 1 and isinstance(items[0], _PLAIN.get(expected, ())):
                remedy = "write it without the brackets"
        case str() if expected == "true or false" and found.lower() in _OLD_BOOLEANS:
            remedy = "yes, no, on and off are strings in YAML 1.2: write true or false"
        case str() if expected.endswith("number"):
            plain = found.strip().replace("_", "").replace(",", "")
            try:
                value = resolve(plain)
            except OutOfRangeError:
                value = None
            if isinstance(value, int | float) and not isinstance(value, bool):
                remedy = "remove the quotes" if plain == found.strip() else f"write {plain}"
        case str() if expected == "true or false" and found.lower() in ("true", "false"):
            remedy = "remove the quotes"
        case _:
            pass
    return remedy


_CODE = re.compile(r"GS[0-9]{3}|[EW](?:-[A-Z]+)+")
_NOT_BUILT = "not_built"
_OF_KEYS = ("extra_forbidden", "missing")
_MOST_WORDS = 24
_OPTIONS = frozenset(option.name for options in OPTIMIZERS.values() for option in options)
_FAR = 2
_MOST_READ = 4 * MOST_PROBLEMS


def explain_validation(error: ValidationError, document: Document, root: type[BaseModel]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for every problem that validating a document as ``root`` found, sorted by place.

    An error that a validator raises as PydanticCustomError with a diagnostic's code for its type keeps code and
    message; its context may have ``help``, ``label`` and ``at``, "key" or "value".
    """
    # Read more errors than are reported, since the branches of a union make one problem.
    details = [Detail.read({**detail}) for detail in islice(error.errors(include_url=False), _MOST_READ)]
    # Lists with invalid items are too short for pydantic, which does not count these.
    inner = {detail.location[:length] for detail in details for length in range(len(detail.location))}
    problems: list[_Problem] = []
    misspelt: set[Path] = set()
    for detail in details:
        if detail.kind in ("too_short", "too_long") and detail.location in inner:
            continue
        location = detail.location[:-1] if detail.kind in _OF_KEYS else detail.location
        problem = _Problem(detail=detail, trace=trace(location, root, document.data))
        problems.append(problem)
        if detail.kind == "extra_forbidden":
            near = closest(str(detail.location[-1]), _find_keys(problem.trace.models), 1)
            misspelt.update((*location, each) for each in near)
    # A missing key that is there but misspelt is reported as unknown only.
    problems = [item for item in problems if item.detail.kind != "missing" or item.detail.location not in misspelt]
    return sort_diagnostics(dict.fromkeys(_explain(group, document) for group in _choose_branches(problems, 0)))


class _Problem(Struct, frozen=True, kw_only=True):
    """One error and where its location leads; for errors about a key, that is the mapping it is or should be in."""

    detail: Detail
    trace: Trace

    @property
    def is_mismatch(self) -> bool:
        """Return whether nothing but the type of the value, or its choice among several, is wrong."""
        return self.detail.expected_type is not None or bool(self.detail.choices)


def _choose_branches(problems: Iterable[_Problem], level: int) -> list[Sequence[_Problem]]:
    """Group problems into diagnostics: all branches of a union failed, but the user meant one of them."""
    unions: dict[Path, dict[str, list[_Problem]]] = {}
    groups: list[Sequence[_Problem]] = []
    for problem in problems:
        if level < len(problem.trace.branches):
            path, label = problem.trace.branches[level]
            unions.setdefault(path, {}).setdefault(label, []).append(problem)
        else:
            groups.append([problem])
    for path, branches in unions.items():
        best = min(branches.values(), key=lambda branch: (_distance(path, branch), len(branch)))
        if len(branches) > 1 and _distance(path, best) == _FAR:
            groups.append([problem for branch in branches.values() for problem in branch])
        else:
            groups.extend(_choose_branches(best, level + 1))
    return groups


def _distance(path: Path, branch: Iterable[_Problem]) -> int:
    """Return 0 where a branch of a union at a path took the value and failed inside, 1 where it took its type."""
    problems = tuple(branch)
    if any(item.detail.kind in _OF_KEYS or len(item.trace.path) > len(path) for item in problems):
        return 0
    return _FAR if all(item.is_mismatch for item in problems) else 1


def _explain(group: Sequence[_Problem], document: Document) -> Diagnostic:
    """Return the diagnostic of a problem, or of the branches of a union that all failed."""
    problem = group[0]
    detail, path = problem.detail, problem.trace.path
    if len(group) > 1 or problem.is_mismatch:
        return _explain_mismatch(group, document)
    where = f"`{spell_path(path)}`" if path else spell_path(path)
    key = str(detail.location[-1]) if detail.location else ""
    if _CODE.fullmatch(detail.kind) or detail.kind == _NOT_BUILT:  # raised by a validator of ours
        return Diagnostic(
            code="GS045" if detail.kind == _NOT_BUILT else detail.kind,
            message=detail.message,
            span=document.key_span(path) if detail.context.get("at") == "key" else _find_span(document, path),
            label=str(detail.context.get("label", "")),
            help=str(detail.context.get("help", "")),
        )
    if detail.kind == "extra_forbidden":
        fields = _find_keys(problem.trace.models)
        known = [name for name, is_usable in fields.items() if is_usable]
        help = f"its keys are {', '.join(known)}" if 0 < len(known) <= _MOST_WORDS else "remove it"
        remedy = _fix_item(problem.trace.data, key)
        if "optimizer" in fields and key in _OPTIONS:
            remedy = f"it is an option of the optimizer: write `optimizer: {{name: adam, {key}: ...}}`"
        return Diagnostic(
            code="GS040",
            message=f"unknown key {quote(key)} in {where}",
            span=document.key_span((*path, key)),
            label="" if remedy else did_you_mean(key, fields),
            help=remedy or help,
        )
    if detail.kind == "missing":
        span = document.key_span(path)
        start = replace(span, end_line=span.line, end_column=span.column)
        message, label = f"missing key {key!r} in {where}", f"needs '{key}'"
        span = span if path else start
        return Diagnostic(code="GS042", message=message, span=span, label=label, help=f"add `{key}: ...`")
    # What else is wrong with a value: a constraint that it breaks, or what a validator raised.
    constraint = _CONSTRAINTS.get(detail.kind)
    raised = detail.context.get("error")
    if constraint is not None:
        numbers = {name: f"{item:.15g}" for name, item in detail.context.items() if isinstance(item, float)}
        expected = constraint.format_map({**detail.context, **numbers})
        found = detail.context.get("actual_length", describe(detail.found))
        message = f"expected {expected} as {where}, found {found}"
    elif isinstance(raised, Exception):
        message = str(raised) or f"this value is not allowed as {where}"
    else:
        message = f"{where}: {detail.message}"
    span = document.key_span(path) if key == "[key]" else _find_span(document, path)
    return Diagnostic(code="GS044", message=message, span=span)


def _fix_item(data: Plain, key: str) -> str:
    """Return what to write instead of a key that is the rest of a text after a comma, or has no colon; else nothing."""
    if not isinstance(data, dict) or data.get(key) is not None:
        return ""
    keys = [*data]
    at = keys.index(key) if key in keys else 0
    before = data[keys[at - 1]] if at else None
    if isinstance(before, str) and before.startswith("(") and key.endswith(")"):
        return f"a list has square brackets: `{keys[at - 1]}: [{before[1:]}, {key[:-1]}]`"
    if isinstance(before, str) and before.count("(") > before.count(")"):
        return f'a text with a comma in it needs quotes: `{keys[at - 1]}: "{before}, {key}"`'
    if isinstance(before, str) and re.fullmatch(r"\w+", key):
        return f"a list needs brackets: `{keys[at - 1]}: [{before}, {key}]`"
    return fix_key(key, None)


def _find_keys(models: Iterable[type[BaseModel]]) -> Mapping[str, bool]:
    """Return the keys that classes take, each with whether any value is allowed there: a field of None has none."""
    fields = (pair for model in models for pair in model.model_fields.items())
    return {field.alias or name: field.annotation is not type(None) for name, field in fields}


def _explain_mismatch(group: Sequence[_Problem], document: Document) -> Diagnostic:
    """Report what was expected and found: a type, or one of several values."""
    details = [problem.detail for problem in group]
    path, found = group[0].trace.path, details[0].found
    where, span = f"`{spell_path(path)}`" if path else spell_path(path), _find_span(document, path)
    choices = tuple(dict.fromkeys(choice for detail in details for choice in detail.choices))
    types = tuple(dict.fromkeys(words for detail in details if (words := detail.expected_type) is not None))
    if choices and (isinstance(found, str) or not types):
        message, help = f"{describe(found)} is not allowed as {where}", f"write {enumerate_words((*choices, *types))}"
        label = did_you_mean(found, [choice.strip("'") for choice in choices]) if isinstance(found, str) else ""
        return Diagnostic(code="GS043", message=message, span=span, label=label, help=help)
    message = f"expected {enumerate_words((*types, *choices))} as {where}, found {describe(found)}"
    remedies = (*(_find_remedy(words, found) for words in types), *(_FORMS.get(words, "") for words in types))
    return Diagnostic(code="GS041", message=message, span=span, help=next(filter(None, remedies), ""))


def _find_span(document: Document, path: Path) -> Span:
    """Return where a value stands; of one over several lines, where its key does."""
    span = document.value_span(path)
    return span if span.line == span.end_line or not path else document.key_span(path)

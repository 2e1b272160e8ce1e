"""Turn pydantic's validation errors into diagnostics: at the right place, in the words of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pydantic import BaseModel, ValidationError

from graphspec.builder import Path
from graphspec.diagnostics import Diagnostic, Span, sort_diagnostics
from graphspec.expectations import Detail, explain_constraint, find_remedy, show_form
from graphspec.limits import MOST_PROBLEMS
from graphspec.schema_paths import Trace, trace
from graphspec.source import Document
from graphspec.suggestions import closest
from graphspec.words import describe, enumerate_words, quote, spell_path

_CODE = re.compile(r"GS[0-9]{3}|[EW](?:-[A-Z]+)+")
_NOT_BUILT = "not_built"
_OF_KEYS = ("extra_forbidden", "missing")
_LENGTHS = ("too_short", "too_long")
_MOST_WORDS = 24
_FAR = 2
_MOST_READ = 4 * MOST_PROBLEMS


def explain_validation(error: ValidationError, document: Document, root: type[BaseModel]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for every problem that validating a document as ``root`` found, sorted by place.

    An error that a validator raises as PydanticCustomError with a diagnostic's code for its type keeps code and
    message; its context may have ``help``, ``label`` and ``at``, "key" or "value".
    """
    # More than are told are read, since those of a union make one problem.
    found = islice(error.errors(include_url=False), _MOST_READ)
    details = (Detail.read({**detail}) for detail in found)
    problems = _drop_misspelt(_drop_lengths([_find_problem(detail, document, root) for detail in details]))
    groups = _choose_branches(problems, 0)
    return sort_diagnostics(dict.fromkeys(_explain(group, document) for group in groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """One error and where its location leads; for errors about a key, that is the mapping it is or should be in."""

    detail: Detail
    trace: Trace

    @property
    def is_mismatch(self) -> bool:
        """Return whether nothing but the type of the value, or its choice among several, is wrong."""
        return self.detail.expected_type is not None or bool(self.detail.choices)


def _find_problem(detail: Detail, document: Document, root: type[BaseModel]) -> _Problem:
    location = detail.location[:-1] if detail.kind in _OF_KEYS else detail.location
    return _Problem(detail=detail, trace=trace(location, root, document.data))


def _drop_lengths(problems: Sequence[_Problem]) -> list[_Problem]:
    """Leave out what is only said to be too short because items of it are wrong, which do not count then."""
    locations = {problem.detail.location for problem in problems}
    inner = {location[:length] for location in locations for length in range(len(location))}
    return [item for item in problems if item.detail.kind not in _LENGTHS or item.detail.location not in inner]


def _drop_misspelt(problems: Sequence[_Problem]) -> list[_Problem]:
    """Leave out keys that are missing only because they are there with a slip of the pen, which is told anyway."""
    meant = {
        (*problem.detail.location[:-1], near)
        for problem in problems
        if problem.detail.kind == "extra_forbidden"
        for near in closest(str(problem.detail.location[-1]), _find_keys(problem.trace.models), 1)
    }
    return [item for item in problems if item.detail.kind != "missing" or item.detail.location not in meant]


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
        groups.extend(_choose_branch(path, list(branches.values()), level))
    return groups


def _choose_branch(path: Path, branches: Sequence[list[_Problem]], level: int) -> list[Sequence[_Problem]]:
    """Return the groups of the branch that fits best; one group for all where none fits at all."""
    best = min(branches, key=lambda branch: (_distance(path, branch), len(branch)))
    if len(branches) > 1 and _distance(path, best) == _FAR:
        return [[problem for branch in branches for problem in branch]]
    return _choose_branches(best, level + 1)


def _distance(path: Path, branch: Iterable[_Problem]) -> int:
    """Return 0 where a branch of a union at a path took the value and failed inside, 1 where it took its type."""
    problems = tuple(branch)
    if any(item.detail.kind in _OF_KEYS or len(item.trace.path) > len(path) for item in problems):
        return 0
    return _FAR if all(item.is_mismatch for item in problems) else 1


def _explain(group: Sequence[_Problem], document: Document) -> Diagnostic:
    problem = group[0]
    kind = problem.detail.kind
    if len(group) > 1 or problem.is_mismatch:
        return _explain_mismatch(group, document)
    if _CODE.fullmatch(kind) or kind == _NOT_BUILT:
        return _explain_custom(problem, document)
    if kind == "extra_forbidden":
        return _explain_unknown_key(problem, document)
    if kind == "missing":
        return _explain_missing_key(problem, document)
    return _explain_value(problem, document)


def _explain_custom(problem: _Problem, document: Document) -> Diagnostic:
    """Return the diagnostic that a validator of ours made."""
    detail, path = problem.detail, problem.trace.path
    is_key = detail.context.get("at") == "key"
    return Diagnostic(
        code="GS045" if detail.kind == _NOT_BUILT else detail.kind,
        message=detail.message,
        span=document.key_span(path) if is_key else _find_span(document, path),
        label=str(detail.context.get("label", "")),
        help=str(detail.context.get("help", "")),
    )


def _explain_unknown_key(problem: _Problem, document: Document) -> Diagnostic:
    key, path = str(problem.detail.location[-1]), problem.trace.path
    fields = _find_keys(problem.trace.models)
    near = closest(key, fields, 1)
    known = [name for name, is_usable in fields.items() if is_usable]
    return Diagnostic(
        code="GS040",
        message=f"unknown key {quote(key)} in {_where(path)}",
        span=document.key_span((*path, key)),
        label=f"did you mean '{near[0]}'?" if near else "",
        help=f"its keys are {', '.join(known)}" if 0 < len(known) <= _MOST_WORDS else "remove it",
    )


def _find_keys(models: Iterable[type[BaseModel]]) -> Mapping[str, bool]:
    """Return the keys that classes take, each with whether any value is allowed there: a field of None has none."""
    fields = (pair for model in models for pair in model.model_fields.items())
    return {field.alias or name: field.annotation is not type(None) for name, field in fields}


def _explain_missing_key(problem: _Problem, document: Document) -> Diagnostic:
    key, path = str(problem.detail.location[-1]), problem.trace.path
    span = document.key_span(path)
    return Diagnostic(
        code="GS042",
        message=f"missing key {key!r} in {_where(path)}",
        span=span if path else _start_of(span),
        label=f"needs '{key}'",
        help=f"add `{key}: ...`",
    )


def _explain_mismatch(group: Sequence[_Problem], document: Document) -> Diagnostic:
    """Tell what was expected and found; the problems of a group are the branches of a union that all failed."""
    details = [problem.detail for problem in group]
    path, found = group[0].trace.path, details[0].found
    choices = tuple(dict.fromkeys(choice for detail in details for choice in detail.choices))
    types = tuple(dict.fromkeys(words for detail in details if (words := detail.expected_type) is not None))
    if choices and (isinstance(found, str) or not types):
        return _explain_choice(path, found, choices, types, document)
    remedies = (*(find_remedy(words, found) for words in types), *map(show_form, types))
    return Diagnostic(
        code="GS041",
        message=f"expected {enumerate_words((*types, *choices))} as {_where(path)}, found {describe(found)}",
        span=_find_span(document, path),
        help=next((remedy for remedy in remedies if remedy), ""),
    )


def _explain_choice(
    path: Path, found: object, choices: tuple[str, ...], types: tuple[str, ...], document: Document
) -> Diagnostic:
    near = closest(found, [choice.strip("'") for choice in choices], 1) if isinstance(found, str) else ()
    return Diagnostic(
        code="GS043",
        message=f"{describe(found)} is not allowed as {_where(path)}",
        span=_find_span(document, path),
        label=f"did you mean '{near[0]}'?" if near else "",
        help=f"write {enumerate_words((*choices, *types))}",
    )


def _explain_value(problem: _Problem, document: Document) -> Diagnostic:
    """Tell what else is wrong with a value: a constraint, or what a validator raised."""
    detail, path = problem.detail, problem.trace.path
    wanted = explain_constraint(detail)
    raised = detail.context.get("error")
    if wanted is not None:
        found = detail.context.get("actual_length", describe(detail.found))
        message = f"expected {wanted} as {_where(path)}, found {found}"
    elif isinstance(raised, Exception):
        message = str(raised) or f"this value is not allowed as {_where(path)}"
    else:
        message = f"{_where(path)}: {detail.message}"
    span = document.key_span(path) if detail.location[-1:] == ("[key]",) else _find_span(document, path)
    return Diagnostic(code="GS044", message=message, span=span)


def _where(path: Path) -> str:
    return f"`{spell_path(path)}`" if path else spell_path(path)


def _find_span(document: Document, path: Path) -> Span:
    """Return where a value stands; of one over several lines, where its key does."""
    span = document.value_span(path)
    return span if span.line == span.end_line or not path else document.key_span(path)


def _start_of(span: Span) -> Span:
    return Span(file=span.file, line=span.line, column=span.column, end_line=span.line, end_column=span.column)

"""Load a spec: from a file or a text to a checked :class:`GraphSpec`, or a report of every problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from pydantic import ValidationError

from graphspec.check.indentation import fix_indentation
from graphspec.check.salvage import check_rest
from graphspec.check.schema_errors import explain_validation
from graphspec.check.validate import validate
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, SpecError, require_kind, sort_diagnostics
from graphspec.expand.bindings import bind_uses
from graphspec.expand.copies import copy_blocks
from graphspec.expand.fold import fold_numbers
from graphspec.expand.formulas import expand_formulas, find_unreadable
from graphspec.expand.includes import include_files
from graphspec.expand.phases import apply_phases
from graphspec.limits import Limits
from graphspec.read.interpolation import interpolate, join_uses
from graphspec.read.overrides import override
from graphspec.read.source import Document, read_document
from graphspec.startup import paused_collection

STANDARD = Limits()


@paused_collection
def load(
    source: Path | str,
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    root: Path | None = None,
    limits: Limits = STANDARD,
) -> GraphSpec:
    """Return the checked spec in a YAML or JSON file, or in a text, with overrides applied.

    A string with a line break, or one that begins with `{`, is a text; any other is the path of a file. Messages call
    the document ``name``, by default the path of the file. An override is `path=value`, as in `vars.lr=1e-3`. What the
    document includes lies below ``root``: by default the nearest folder with a `.git` or `pyproject.toml`, else its
    own.

    Raises SpecError with every problem of the document.

    >>> from graphspec import load
    >>> spec = load("examples/simultaneous-gan/simultaneous-gan.yaml", ["vars.latent=8"])
    >>> list(spec.models), spec.models["generator"].optimizer.options["lr"]
    (['generator', 'discriminator'], 0.0005)
    """
    help = "write a mapping as text: `load(json.dumps(document, indent=1))`"
    require_kind(source, (Path, str), "`load` takes a path, or a text", help)
    is_text = isinstance(source, str) and ("\n" in source or source.startswith("{"))
    named = source if is_text else Path(source)
    document = read_document(named, name=name, limits=limits)
    document = include_files(document, named if isinstance(named, Path) else None, root, limits)
    return read_spec(override(document, overrides, limits=limits), limits)


@paused_collection
def read_spec(document: Document, limits: Limits = STANDARD) -> GraphSpec:
    """Return the checked spec that a document declares; raise SpecError with every problem of it."""
    document, displaced = fix_indentation(document)
    document, unreadable = expand_formulas(apply_phases(document))
    known = (*displaced, *unreadable)
    try:
        expansion = copy_blocks(document, limits=limits)
        document = bind_uses(replace(expansion, document=interpolate(expansion.document)))
    except SpecError as error:
        raise SpecError((*known, *error.diagnostics), error.texts) from None
    document, valueless = fold_numbers(document)
    spec, diagnostics = check_document(document, find_unreadable(document))
    if spec is None or known or valueless:
        raise SpecError((*known, *valueless, *diagnostics), document.texts)
    return spec


def check_document(
    document: Document, broken: frozenset[str] = frozenset()
) -> tuple[GraphSpec | None, tuple[Diagnostic, ...]]:
    """Return the spec that a document declares, or None where it has errors; and every problem, sorted by place.

    Nothing is held against what is ``broken``, of which the problems are known.
    """
    try:
        spec = GraphSpec.read(document)
    except ValidationError as error:
        problems = (*explain_validation(error, document, GraphSpec), *check_rest(document, error, broken))
        return None, sort_diagnostics(join_uses(dict.fromkeys(problems), document))
    diagnostics = sort_diagnostics(join_uses(validate(spec, broken), document))
    has_errors = any(diagnostic.severity == "error" for diagnostic in diagnostics)
    return None if has_errors else spec, diagnostics

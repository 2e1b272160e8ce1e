"""A spec as a document again: plain data, or the text of it."""

from __future__ import annotations

from typing import cast

from graphspec.builder import Plain
from graphspec.graph import GraphSpec
from graphspec.rendering.defaults import resolve
from graphspec.rendering.layout import lay_out
from graphspec.rendering.spelling import spell


def to_plain(spec: GraphSpec) -> dict[str, Plain]:
    """Return the document that declares a spec, as plain data: what JSON holds, and numbers that are not finite.

    Defaults are written out where they can be without compiling, `vars` and `compat` are not; keys come in the order in
    which they are declared, and ops, models and inputs in that of the spec.
    """
    return cast("dict[str, Plain]", spell(resolve(spec)))


def render(spec: GraphSpec) -> str:
    """Return the document that declares a spec as YAML; reading and rendering it again gives the same bytes."""
    return lay_out(to_plain(spec))

"""Errors of the user's own code, told as such."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from graphspec.diagnostics import SpecError
from runtime.data.place import Place
from runtime.frames import describe, raised_in


@contextmanager
def blamed(place: Place) -> Generator[None]:
    """Turn whatever the user's code raises into GS226 with the user's frames; problems pass as they are."""
    try:
        yield
    except SpecError:
        raise
    except Exception as error:
        message, help = f"the source raised {describe(error)}", "the error comes from the source's own code"
        raise place.problem("GS226", message, notes=raised_in(error), help=help) from error

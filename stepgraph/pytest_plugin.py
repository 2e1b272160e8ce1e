"""The pytest fixture `audit_step`: a `with` statement around training steps that fails the test for what it finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from runtime.audit.session import Audit


@pytest.fixture
def audit_step() -> Callable[..., AbstractContextManager[Audit]]:
    """Return a function for a `with` statement around training steps; at its end, errors and warnings fail the test.

    ``allow``: codes of findings that are meant; SpecError (GS275) for what is none.
    """
    from graphspec.diagnostics import require_kind, require_name
    from graphspec.words import did_you_mean
    from runtime.audit.findings.catalogue import CODES
    from runtime.audit.session import audit

    @contextmanager
    def audited(*, allow: Collection[str] = ()) -> Generator[Audit]:
        """Audit the statement, and fail for what is found."""
        what = "`allow` of `audit_step` takes codes of findings"
        require_kind(allow, (tuple, list, set, frozenset), what, f"write allow=({allow!r},)")
        for code in allow:
            near = did_you_mean(str(code), CODES)
            require_name(code, tuple(CODES), what, near or "`docs/audit.md` lists them")
        with audit() as report:
            yield report
        found = [each for each in report.report.of("error", "warning") if each.code not in allow]
        if found:
            pytest.fail(str(report), pytrace=False)

    return audited

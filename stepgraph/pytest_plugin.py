"""The pytest fixture `audit_step`: a `with` statement around training steps that fails the test for what it finds."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from runtime.audit.session import Audit


@pytest.fixture
def audit_step() -> Callable[..., AbstractContextManager[Audit]]:
    """Return a function for a `with` statement around training steps; at its end, errors and warnings fail the test.

    ``allow``: codes of findings that are meant.
    """
    from runtime.audit.session import audit

    @contextmanager
    def audited(*, allow: tuple[str, ...] = ()) -> Generator[Audit]:
        """Audit the statement, and fail for what is found."""
        with audit() as report:
            yield report
        found = [each for each in report.report.of("error", "warning") if each.code not in allow]
        if found:
            pytest.fail(str(report), pytrace=False)

    return audited

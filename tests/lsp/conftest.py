"""One server for the tests of a module: each test has texts of its own."""

from __future__ import annotations

import pytest

from tests.lsp.editor import Editor


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """Return an editor whose server works in an empty folder, and says nothing of errors of its own."""
    made = Editor(tmp_path_factory.mktemp("specs"))
    yield made
    assert made.quit() == 0
    assert made.logged == []

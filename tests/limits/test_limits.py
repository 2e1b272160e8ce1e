"""Every document inside the limits is checked in bounded time and memory, whatever it asks for.

The bounds here are generous, since other work may run beside; `python -m tests.limits` asks for two seconds.
"""

from __future__ import annotations

import pytest

from tests.limits.documents import DOCUMENTS
from tests.limits.measuring import measure

SECONDS = 10
MEGABYTES = 500
CHARACTERS = 300_000
"""As much is printed at most: a hundred problems with their excerpts, each with long words."""


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_check_takes_little_time_and_memory(name):
    taken = measure(name)
    assert taken.code in (0, 1), taken
    assert "internal error" not in taken.first
    assert taken.seconds < SECONDS, taken
    assert taken.megabytes < MEGABYTES, taken
    assert taken.printed < CHARACTERS, taken

"""What waits for a feature that is not built: the specs of specs/waiting, each with what it waits for.

When a feature is built its specs are refused no longer. They go to specs/, and get a test with a reference and with the
mistake, as the others have.
"""

from __future__ import annotations

import pytest

from graphspec import SpecError
from tests.catalogue.trial import SPECS, plan_of

WAITING = {
    "replicated-gan": "`parallel`",
    "replicated-micro-batches": "`parallel`",
    "replicated-penalty": "`parallel`",
}


@pytest.mark.parametrize("name", WAITING)
def test_it_waits_for_a_feature(name):
    with pytest.raises(SpecError, match=rf"GS045.*{WAITING[name]} is part of the language but not built yet"):
        plan_of(f"waiting/{name}")


def test_every_spec_that_waits_is_named_here():
    assert {path.stem for path in (SPECS / "waiting").iterdir()} == WAITING.keys()

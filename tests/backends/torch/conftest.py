"""How the tests of PyTorch choose the way in which a step is tried before its first."""

from __future__ import annotations

import pytest

from runtime.backends.torch import dryrun


@pytest.fixture(params=["real", "fake"])
def way_of_trying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Try steps as small ones are, on real copies, or as large ones are, with fake tensors."""
    if request.param == "fake":
        monkeypatch.setattr(dryrun, "SMALL", -1)
    return request.param

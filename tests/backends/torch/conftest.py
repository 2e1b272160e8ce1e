"""How a step is tried before its first, and what compiles the graphs of captured ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from runtime.backends.torch import capture, dryrun
from tests.backends.torch.captured_steps import Compiler


@pytest.fixture(params=["real", "fake"])
def way_of_trying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Try steps as small ones are, on real copies, or as large ones are, with fake tensors."""
    if request.param == "fake":
        monkeypatch.setattr(dryrun, "SMALL", -1)
    return request.param


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Compile with what runs the operations that Dynamo has found as they are."""
    made = Compiler(lambda graph, inputs: graph.forward)
    monkeypatch.setattr(capture, "COMPILER", made)
    yield made
    torch._dynamo.reset()

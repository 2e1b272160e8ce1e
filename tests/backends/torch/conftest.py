"""How a step is tried before its first, and what compiles the graphs of captured ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from runtime.backends.torch import capture, dryrun
from tests.backends.torch.captured_steps import Compiler
from tests.backends.torch.recorder import HostRecorder


@pytest.fixture(params=["real", "fake"])
def way_of_trying(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Try steps as small ones are, on real copies, or as large ones are, with fake tensors."""
    if request.param == "fake":
        monkeypatch.setattr(dryrun, "SMALL", -1)
    return request.param


@pytest.fixture(params=["launched", pytest.param("recorded", marks=pytest.mark.long)])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """Compile with what runs the operations that Dynamo has found as they are, or as recordings repeat them."""
    made = Compiler(lambda graph, inputs: graph.forward)
    monkeypatch.setattr(capture, "COMPILER", made)
    if request.param == "recorded":
        made.recorder = HostRecorder()
        monkeypatch.setattr(capture, "find_recorder", lambda device: made.recorder)
    yield made
    torch._dynamo.reset()

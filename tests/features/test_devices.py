"""A missing device, or a model on the wrong device, is reported when the step is built."""

from __future__ import annotations

import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import build
from tests.features.test_update_from_loss import LAYER

pytestmark = pytest.mark.row("C13")


@pytest.mark.parametrize("device", ["gpu:77", "cuda:77", "toaster"])
def test_a_device_that_is_not_there_is_an_error(device: str, backend: str) -> None:
    with pytest.raises(SpecError, match=device.partition(":")[0]):
        build(compile_step(load(LAYER), backend), device=device)


def test_a_step_says_where_it_is(backend: str) -> None:
    assert build(compile_step(load(LAYER), backend), device="cpu").device == "cpu"

"""Memory of messages: used again from step to step, and never while a tensor refers to it."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from runtime.backends.torch.library.processes import Memory, Replicas

ROWS, COLUMNS = 200, 300
"""A matrix of 240 kB."""


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    memory, own = Memory(), [torch.arange(ROWS * COLUMNS, dtype=torch.float32), torch.ones(3)]
    joined = memory.join(own)
    place = joined.data_ptr()
    torch.testing.assert_close(joined, torch.cat(own), rtol=0, atol=0)
    view = joined[: ROWS * COLUMNS].view(ROWS, COLUMNS)[1:]  # a view of views is enough
    del joined
    other = memory.join([torch.zeros(ROWS * COLUMNS + 3)])
    assert other.data_ptr() != place
    torch.testing.assert_close(view, own[0].view(ROWS, COLUMNS)[1:], rtol=0, atol=0)
    del view
    assert memory.join(own).data_ptr() == place


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
)
def test_numbers_of_every_type_are_joined(dtype: torch.dtype) -> None:
    memory, own = Memory(), [torch.arange(100_000).to(dtype), torch.tensor([7]).to(dtype)]
    for _ in range(2):
        assert torch.equal(memory.join(own), torch.cat(own))


def test_small_messages_are_as_they_were() -> None:
    memory = Memory()
    assert torch.equal(memory.join([torch.ones(2), torch.zeros(1)]), torch.tensor([1.0, 1.0, 0.0]))
    assert not memory.kept


def test_a_message_keeps_no_gradient_and_a_loss_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: SimpleNamespace(wait=lambda: None))
    replicas = Replicas("cpu")
    replicas.count = 2  # the other one sends zeros
    gradient = torch.ones(ROWS, COLUMNS)
    reference = weakref.ref(gradient)
    message = replicas.start_sum(torch.tensor(1.5), (gradient, None))
    del gradient
    assert reference() is None
    loss, (total, missing) = message.wait(0), message.wait(1)
    assert (loss.item(), missing) == (1.5, None)
    assert torch.equal(total, torch.ones(ROWS, COLUMNS))
    assert loss.untyped_storage().nbytes() == 4

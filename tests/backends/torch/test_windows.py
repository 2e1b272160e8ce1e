"""Windows multiply by the rows of steps late, if that changes no bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from runtime.backends.torch.library.windows import Window

SHAPES = (4, 3), (3,), ()


def draw(steps: int) -> list[list[torch.Tensor]]:
    """Return the gradients of some steps."""
    generator = torch.Generator().manual_seed(5)
    return [[torch.randn(shape, generator=generator) for shape in SHAPES] for _ in range(steps)]


def expect(gradients: Sequence[Sequence[torch.Tensor]], rows: Sequence[int]) -> list[torch.Tensor]:
    """Return the mean over all rows, each gradient multiplied by its own before it is added."""
    totals = [each * rows[0] for each in gradients[0]]
    for step, count in zip(gradients[1:], rows[1:], strict=True):
        totals = [total.add(each, alpha=count) for total, each in zip(totals, step, strict=True)]
    return [total / sum(rows) for total in totals]


@pytest.mark.parametrize("saved", [None, 1, 2])
@pytest.mark.parametrize(
    "rows", [(16, 16, 16), (16,), (12, 12, 12), (16, 8, 16), (1, 1, 1), (16, 16, 12), (12, 16, 16)], ids=str
)
def test_the_mean_has_the_bits_of_products_taken_at_once(rows: tuple[int, ...], saved: int | None) -> None:
    window = Window([torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES])
    for _ in range(2):  # what is taken leaves nothing
        gradients = draw(len(rows))
        copies = [[each.clone() for each in step] for step in gradients]
        for number, (step, count) in enumerate(zip(gradients, rows, strict=True), 1):
            window.add(step, count)
            if number == saved:
                window.multiply()  # as a checkpoint does
        found = window.take()
        assert all(torch.equal(one, other) for one, other in zip(found, expect(copies, rows), strict=True))
        for step, before in zip(gradients, copies, strict=True):  # others may hold them
            assert all(torch.equal(one, other) for one, other in zip(step, before, strict=True))


def test_a_sum_is_multiplied_before_it_is_taken() -> None:
    window = Window([torch.nn.Parameter(torch.zeros(3))], is_mean=False)
    window.add([torch.tensor([1.0, 2.0, 3.0])], 4)
    window.add([torch.tensor([1.0, 1.0, 1.0])], 4)
    assert window.take()[0].tolist() == [8.0, 12.0, 16.0]


def test_what_a_window_holds_has_no_history_and_stays_when_the_mean_is_taken() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    window = Window([weight])
    for rows in (4, 4, 6):
        (gradient,) = torch.autograd.grad((weight**3).sum(), [weight], create_graph=True)
        kept = gradient.detach().clone()
        window.add([gradient], rows)
        assert gradient.requires_grad
        assert torch.equal(gradient, kept)
    (mean,) = window.take()
    assert not mean.requires_grad
    assert torch.allclose(mean, 3 * weight.detach() ** 2, rtol=0, atol=1e-14)
    (gradient,) = torch.autograd.grad((weight**3).sum(), [weight])
    kept = gradient.clone()
    window.add([gradient], 4)
    (mean,) = window.take()  # of a single step: its gradients are not written
    assert torch.equal(gradient, kept)
    assert torch.equal(mean, kept)

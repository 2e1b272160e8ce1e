"""The arguments of a module's class, found again: the module that they make is tried out, and nothing else happens."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from runtime.backends.torch.audit.arguments import find_arguments


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)


class Sized(nn.Module):
    def __init__(self, size=4, width=8):
        super().__init__()
        self.size, self.width = size, width
        self.inner = nn.Linear(size, width)


class Needing(nn.Module):
    def __init__(self, size, *, sizes=(1, 2)):
        super().__init__()
        self.size, self.sizes = size, sizes
        self.inner = nn.ModuleList(nn.Linear(size, each) for each in sizes)


class Forgetful(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, 2)


class Weighing(nn.Module):
    def __init__(self, beta=0.25):
        super().__init__()
        self.beta = beta


class Renamed(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.size = 2 * size
        self.inner = nn.Linear(self.size, 2)


class Holding(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net


class Failing(nn.Module):
    made = 0

    def __init__(self):
        super().__init__()
        Failing.made += 1
        if Failing.made > 1:
            raise RuntimeError("only one")


class Loud(nn.Module):
    def __init__(self):
        super().__init__()
        print("made", random.random(), np.random.rand())
        self.inner = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (Plain(), {}),
        (Sized(), {}),
        (Sized(4, 9), {"width": 9}),
        (Needing(3), {"size": 3}),
        (Needing(3, sizes=(5,)), {"size": 3, "sizes": [5]}),
        (Weighing(), {}),
        (Weighing(0.5), {"beta": 0.5}),
        (Forgetful(4), None),
        (Renamed(4), {}),
        (Renamed(5), None),
        (Holding(nn.Linear(2, 2)), None),
        (Failing(), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_is_found_makes_the_module(module: nn.Module, found: dict | None) -> None:
    assert find_arguments(module) == found


def test_evaluation_mode_is_no_argument() -> None:
    assert find_arguments(Sized().eval()) == {}


def test_random_numbers_are_as_they_were_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    module = Loud()
    capsys.readouterr()
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    expected = torch.rand(()), random.random(), np.random.rand()
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    assert find_arguments(module) == {}
    assert (torch.rand(()), random.random(), np.random.rand()) == expected
    assert capsys.readouterr().out == ""

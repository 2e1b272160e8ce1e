"""The formulas of the oracle for the classes and functions of users, against these."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.oracle import users
from tests.oracle.numbers import Reals
from tests.oracle.tensors import Tensors
from tests.properties import users as real

GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.normal(size=(2, 3, 4))


@pytest.mark.parametrize("numbers", [Reals(), Tensors()], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, mode) for path in users.CLASSES for mode in ((True,), (False,))[: 1 + (path in users.MODAL)]],
)
def test_a_class_returns_what_its_formula_says(path, mode, numbers):
    module = real.CLASSES[path](size=4).double().train(*mode)
    for parameter in module.parameters():
        parameter.data = torch.from_numpy(GENERATOR.normal(size=parameter.shape))
    names = users.INNER.get(path, {})
    held = {names.get(name, name): value.detach().numpy() for name, value in module.named_parameters()}
    lifted = {name: numbers.lift(value[None]) for name, value in held.items()}
    found = users.CLASSES[path](numbers, lifted, numbers.lift(X[None]), *(mode if path in users.MODAL else ()))
    np.testing.assert_allclose(found[0], module(torch.from_numpy(X)).detach(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("numbers", [Reals(), Tensors()], ids=["numpy", "torch"])
@pytest.mark.parametrize("path", [*users.CALLS, *users.LOSSES])
def test_a_function_returns_what_its_formula_says(path, numbers):
    given = [X] if path in users.CALLS else [X, Y]
    found = {**users.CALLS, **users.LOSSES}[path](numbers, *(numbers.lift(one[None]) for one in given))
    expected = getattr(real, path.partition(":")[2])(*map(torch.from_numpy, given))
    np.testing.assert_allclose(np.asarray(found)[0], expected, rtol=1e-12, atol=1e-15)


def test_the_formulas_are_of_all_that_is_there():
    assert users.CLASSES.keys() == real.CLASSES.keys()

"""The tables of the library are consistent with themselves."""

from __future__ import annotations

import pytest

from graphspec.declare.layers import LAYERS
from graphspec.declare.library import FUNCTIONS, ON_GRADIENTS
from graphspec.declare.optimizers import OPTIMIZERS
from graphspec.declare.options import accepts, describe_option

OPTIONS = [
    (f"{owner}.{option.name}", option)
    for owner, options in [
        *LAYERS.items(),
        *OPTIMIZERS.items(),
        *((name, signature.options) for family in FUNCTIONS.values() for name, signature in family.items()),
    ]
    for option in options
]


@pytest.mark.parametrize("option", [option for _, option in OPTIONS], ids=[name for name, _ in OPTIONS])
def test_an_option_takes_its_own_default_and_says_what_it_takes(option):
    assert option.required or accepts(option, option.default)
    assert describe_option(option)
    assert option.meaning[:1].islower() or option.meaning[:1].isdigit()


def test_what_works_on_gradients_is_in_the_library():
    assert set(ON_GRADIENTS) <= set(FUNCTIONS["call"])


def test_the_library_has_the_losses_and_metrics_of_the_language():
    losses = "cross_entropy nll bce bce_with_logits mse l1 huber kl_div hinge cosine nt_xent focal dice gaussian_nll "
    losses += "poisson_nll triplet_margin ctc wasserstein super_loss"
    assert list(FUNCTIONS["loss"]) == losses.split()
    assert list(FUNCTIONS["metric"]) == ["accuracy", "mean"]

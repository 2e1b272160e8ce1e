"""On a device that is not the host, no two tensors meet in different places, and the host waits as planned."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from graphspec import SpecError
from runtime.api import emit
from runtime.backends.torch.library.graph_optimizers import GraphAdam
from runtime.backends.torch.library.kernels import are_finite
from runtime.backends.torch.library.verdicts import Verdicts
from runtime.backends.torch.library.windows import Window
from tests.backends.torch.other_device import DEVICE, Misplaced, awaited, elsewhere, has_fused, place
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import specs
from tests.conformance.training import built
from tests.properties.execution import execute

STEPS = 4
UNTRIED = {
    "likelihoods": "ctc has no form without numbers",
    "own-code": "its class draws from the device's own generators",
    "precision": "there is no autocast for it",
    "rows": "sparse tensors are summed by the numbers of their rows",
    "sequences": "recurrent layers have no form without numbers",
}
AWAITED = {"ask", "normal", "uniform", "bernoulli", "randint", "permutation", "keep_mask"}
"""What waits: the verdicts that the host asks for, and portable random numbers, which it makes."""


def take_steps(scenario: Scenario) -> set[str]:
    """Return what the host waits for in steps of a scenario."""
    plan, models = scenario.plan("torch"), scenario.models["torch"]() if scenario.models else {}
    try:
        text = built(scenario, "torch").source if models else emit(plan)
    except SpecError:  # only a build finds the sizes
        text = built(scenario, "torch").source
    found = set[str]()
    with elsewhere():
        names = execute(text)
        names["build"].__globals__["has_fused"] = has_fused
        names["build"](seed=0, device=DEVICE, dtype=torch.float32, **({"models": models} if models else {}))
        for batch in islice(scenario.batches(plan.spec), STEPS):
            given = place(batch)
            with awaited() as seen:
                names["step"](given, "train", *plan.program.datasets[:1])
            found |= {*seen}
    return found


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.sample(9)
@pytest.mark.parametrize("scenario", [each for each in specs() if each.name not in UNTRIED], ids=lambda each: each.name)
def test_a_step_keeps_to_its_device_and_waits_as_planned(scenario: Scenario) -> None:
    assert {each.split()[-1] for each in take_steps(scenario)} <= AWAITED


def test_looking_for_numbers_that_are_not_finite_copies_nothing_from_the_host() -> None:
    with elsewhere():
        gradients = [torch.ones(2, 3, device=DEVICE), torch.ones((), device=DEVICE, dtype=torch.float64)]
        window = Window(gradients, guard="drop")
        with awaited() as seen:
            assert are_finite(gradients, are_new=True).device.type == DEVICE
            assert window.is_filled().device.type == DEVICE
    assert seen == []


def test_verdicts_over_no_gradients_are_read_with_those_of_the_device() -> None:
    with elsewhere():
        verdicts = Verdicts(are_new=True)
        with awaited():
            found = verdicts.check_finite("one", [torch.ones(2, device=DEVICE)])
            none = verdicts.check_finite("other", [None])
            assert verdicts.read({"one": found, "other": none}) == {"one": True, "other": True}


def test_the_numbers_of_a_graph_are_where_its_kernels_read_them() -> None:
    with elsewhere():
        optimizer = GraphAdam([torch.ones(2, device=DEVICE)], lr=0.1)
        with awaited() as seen:
            optimizer.feed(1)
        assert optimizer.figures.read(0)["lr"].device.type == DEVICE
    assert seen == []


def test_the_device_notices_what_it_must() -> None:
    with elsewhere():
        there, here = torch.ones(2, device=DEVICE), torch.ones(2)
        with awaited(), pytest.raises(Misplaced, match="stack"):
            torch.stack([there.sum(), here.sum()])
        with awaited(), pytest.raises(Misplaced, match="add_"):
            there.add_(here)
        with awaited() as seen:
            torch.tensor(1.0, device=DEVICE)
            there.copy_(here, non_blocking=True)
            bool(there.sum() > 0)
    assert [each.split()[0] for each in seen] == ["a", "aten::_local_scalar_dense"]

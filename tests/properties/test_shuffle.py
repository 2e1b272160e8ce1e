"""The order in which a spec lists its ops means nothing, but for train-mode forwards of models with buffers."""

from __future__ import annotations

from random import Random

import pytest

from graphspec.diagnostics import SpecError
from tests.oracle.optimizers import DegenerateError
from tests.properties.agreement import judge, modes_of, run, run_oracle
from tests.properties.execution import Execution
from tests.properties.models import has_buffers
from tests.properties.plans import plan_of
from tests.properties.rejections import random_rejected
from tests.properties.specs import random_spec

KNOT = "E-TWO-VERSIONS"


def shuffled(document: dict, seed: int) -> dict:
    """Return a document listed otherwise, forwards of models with BatchNorm in their order."""
    names, models = list(document["ops"]), document["models"]
    called = {name: op.get("forward") for name, op in document["ops"].items()}
    kept = [name for name in names if called[name] in models and has_buffers(models, called[name])]
    Random(seed).shuffle(names)
    places = sorted(names.index(name) for name in kept)
    for place, name in zip(places, kept, strict=True):
        names[place] = name
    return {**document, "ops": {name: document["ops"][name] for name in names}}


def problems(document: dict) -> list[str]:
    """Return the codes of the errors of a document; of its warnings where it has no errors.

    Of a knot of ops one cycle is told, whichever is found first: in several functions it may be the same or another.
    """
    try:
        return sorted(one.code for one in plan_of(document).warnings)
    except SpecError as error:
        found = [one.code for one in error.diagnostics if one.severity == "error"]
        return sorted([code for code in found if code != KNOT] + [KNOT] * (KNOT in found))


def test_another_listing_gives_the_same_numbers():
    compared = 0
    for seed in range(1, 13):
        document = random_spec(Random(seed))
        try:
            first, second = plan_of(document), plan_of(shuffled(document, seed))
        except SpecError:
            continue
        execution = Execution(second)
        told = first.spec, execution.shapes(), modes_of(first)
        try:
            meant = run_oracle(*told)
            assert judge(told, run(execution, first.spec, modes_of(first)), meant) == "", seed
        except DegenerateError:
            continue
        compared += 1
    assert compared > 7


@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.long)])
def test_another_listing_gives_the_same_errors_and_warnings(count):
    documents = [random_spec(Random(seed)) for seed in range(1, count + 1)]
    documents += [random_rejected(Random(seed))[0] for seed in range(count)]
    for seed, document in enumerate(documents):
        assert problems(shuffled(document, seed)) == problems(document), seed

"""What models share, as a build sees it: it must be declared, and is refused otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from compiler import compile_step
from graphspec.diagnostics import SpecError
from graphspec.loading import load
from runtime import build
from tests.oracle.storages import Storages
from tests.properties.plans import PACE
from tests.properties.users import make_models

UNDECLARED = "GS213"


def find_shared(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the models that share something with another, by the letter of their ties."""
    return frozenset(Storages(load(json.dumps(document) + "\n")).groups)


def find_refusals(document: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the codes with which a spec is refused as it is, and where nothing says what its models share.

    Each time the same models are given: raises SpecError for a spec that is refused before it is built.
    """
    return _build(document, document), _build(without_ties(document), document)


def without_ties(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that says of no model what it shares."""
    return {**document, "models": {name: _untie(model) for name, model in document["models"].items()}}


def _untie(model: Mapping[str, Any]) -> Mapping[str, Any]:
    traits = {key: value for key, value in model.get("traits", {}).items() if key != "ties"}
    return {**model, "traits": traits} if traits else model


def _build(document: Mapping[str, Any], given: Mapping[str, Any]) -> set[str]:
    """Return the codes of the errors of a build with the models of another document."""
    plan = compile_step(load(json.dumps(document) + "\n"), pace=PACE)
    models = make_models(load(json.dumps(given) + "\n"), torch.float64)
    try:
        build(plan, device="cpu", dtype="float64", models=models, allow=["tests"])
    except SpecError as error:
        return {one.code for one in error.diagnostics if one.severity == "error"}
    return set()

"""Clocks of random specs that leave no step for a write are taken away: the compiler refuses them (GS120)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from graphspec.loading import load
from tests.oracle.clocks import Pace
from tests.oracle.idle import find_idle

CLOCKS = ("until", "start", "every", "dataset")


def wake(document: dict, pace: Pace | None = None) -> dict:
    """Return a document whose writes all take place in some step; first no window is cut by epochs, then no clock."""
    place_on_sets(document)
    if not any(may_end(op) for op in document["ops"].values()):
        return document
    if not (idle := find_idle(load(json.dumps(document) + "\n"), pace)):
        return document
    for name in idle:
        op = document["ops"][name]
        if isinstance(op.get("accumulate"), dict):
            op["accumulate"].pop("on_epoch_end", None)
    for name in sorted(find_idle(load(json.dumps(document) + "\n"), pace)):
        for field in CLOCKS:
            document["ops"][name].pop(field, None)
    place_on_sets(document)
    return document


def place_on_sets(document: dict) -> None:
    """Take the data sets from ops that run on none of those that are named; with each of them fewer may be named."""
    while True:
        words = {name: _list(op["dataset"]) for name, op in document["ops"].items() if "dataset" in op}
        named = {word.removeprefix("!") for each in words.values() for word in each}
        wanted = {name: {word for word in each if word[0] != "!"} or named for name, each in words.items()}
        lost = [name for name, each in words.items() if wanted[name] <= {word[1:] for word in each if word[0] == "!"}]
        if not lost:
            return
        for name in lost:
            del document["ops"][name]["dataset"]


def _list(words: str | list[str]) -> list[str]:
    return words if isinstance(words, list) else [words]


def may_end(op: Mapping) -> bool:
    """Return whether an op ends, runs on batches of some data sets alone, or has a window that is cut by epochs."""
    return "until" in op or "dataset" in op or "on_epoch_end" in repr(op.get("accumulate"))

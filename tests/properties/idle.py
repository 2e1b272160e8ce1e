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
    return document


def may_end(op: Mapping) -> bool:
    """Return whether an op ends, runs on batches of some data sets alone, or has a window that is cut by epochs."""
    return "until" in op or "dataset" in op or "on_epoch_end" in repr(op.get("accumulate"))

"""Opening of feeds: the batches of one set, or of several that take turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from graphspec.data import TrainingSets
from graphspec.graph import GraphSpec
from runtime.data.feed import Feed
from runtime.data.opening import open_data
from runtime.data.place import Place
from runtime.data.turns import TurnFeed

AnyFeed: TypeAlias = Feed | TurnFeed
"""The batches of a run."""


def open_feed(
    spec: GraphSpec,
    role: str,
    *,
    seed: int,
    allow: Sequence[str] = (),
    directory: Path | None = None,
    dataset: str | None = None,
) -> AnyFeed:
    """Return the batches of ``data.<role>``, from the first one on; the arguments are those of :func:`open_data`.

    Raises SpecError: GS201-GS205, GS220-GS229.
    """

    def _open(dataset: str | None) -> Feed:
        batches = open_data(spec, role, seed=seed, allow=allow, directory=directory, dataset=dataset)
        return Feed(batches=batches, place=Place(spec=spec, role=role, dataset=dataset))

    declared = spec.data.get(role)
    if not isinstance(declared, TrainingSets):
        return _open(dataset)
    feeds = {name: _open(name) for name in declared.sets}
    return TurnFeed(feeds=feeds, place=Place(spec=spec, role=role), seed=seed, mix=declared.mix)

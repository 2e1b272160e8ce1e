"""Results of many random specs, cumulated in a file over runs and processes."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.properties.features import find_features
from tests.properties.specs import random_spec
from tests.properties.verdicts import Document, Verdict

COUNTERS = ("specs", "programs", "rejected", "degenerate", "features")


class OverlapError(Exception):
    """Results of the same seeds, or of another generator of specs, cannot be added up."""


@dataclass(kw_only=True)
class Results:
    """Totals over ranges of seeds."""

    generator: str = ""
    """A digest of the first specs: with another one, a seed means another spec."""
    versions: list[str] = field(default_factory=list)
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """Ranges, from the first to the last seed, in order and as few as can be."""
    specs: Counter[str] = field(default_factory=Counter)
    """By kind of verdict."""
    programs: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    """By code."""
    degenerate: Counter[str] = field(default_factory=Counter)
    """By reason."""
    features: Counter[str] = field(default_factory=Counter)
    """In how many of the specs that agreed each occurs."""
    failures: list[str] = field(default_factory=list)

    def add(self, seed: int, document: Document, verdict: Verdict) -> None:
        """Count one spec."""
        self.seeds = merge_ranges([*self.seeds, (seed, seed)])
        self.specs[verdict.kind] += 1
        self.programs.update(executed=verdict.executed, same=verdict.same)
        if verdict.kind in ("rejected", "degenerate"):
            getattr(self, verdict.kind)[verdict.what] += 1
        if verdict.kind == "agreed":
            self.features.update(set(find_features(document)))
        if verdict.is_failure:
            self.failures.append(f"seed {seed}: {verdict.kind}: {verdict.what.splitlines()[0]}")

    def merge(self, other: Results) -> None:
        """Add other results; raise OverlapError where they are of the same seeds or another generator."""
        if self.generator and self.generator != other.generator:
            raise OverlapError("these results are of another generator of specs: name another file by --results")
        self.seeds = merge_ranges([*self.seeds, *other.seeds])
        self.generator = other.generator
        self.versions = sorted({*self.versions, *other.versions})
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))
        self.failures = sorted({*self.failures, *other.failures})

    def count(self) -> int:
        """Return how many specs were tried."""
        return self.specs.total()

    def covers(self, seed: int) -> bool:
        """Return whether a seed was tried."""
        return any(first <= seed <= last for first, last in self.seeds)

    def to_json(self) -> dict[str, object]:
        """Return the document of the results, counters in order of their names."""
        counters = {name: dict(sorted(getattr(self, name).items())) for name in COUNTERS}
        plain = {"generator": self.generator, "versions": self.versions, "seeds": self.seeds}
        return {**plain, "tried": self.count(), **counters, "failures": self.failures}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Results:
        """Return the results in a document."""
        seeds = [(first, last) for first, last in document["seeds"]]
        found = cls(generator=document["generator"], versions=document["versions"], seeds=seeds)
        for name in COUNTERS:
            getattr(found, name).update(document[name])
        found.failures = document["failures"]
        return found


def merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, neighbours joined; raise OverlapError where two overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            raise OverlapError(f"seed {first} was tried already")
        if found and first == found[-1][1] + 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


@functools.cache
def find_generator() -> str:
    """Return the digest of the specs that the first seeds give."""
    text = json.dumps([random_spec(seed) for seed in range(50)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_results(path: Path) -> Results:
    """Return the results in a file; none where there is no file."""
    return Results.of(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Results()


def add_to_file(path: Path, found: Results) -> Results:
    """Add results to those in a file, which is never half written; return all of them."""
    with _locked(path.parent):
        total = read_results(path)
        total.merge(found)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(total.to_json(), indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    return total


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder: several may try other seeds at the same time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

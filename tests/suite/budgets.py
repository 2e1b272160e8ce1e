"""How many seconds the tests of each area may take: more is no failure, but is said in a word."""

from __future__ import annotations

from collections.abc import Mapping

CORES = 2
MINUTES = 18
"""What the whole suite may take on so many cores."""

BUDGETS: Mapping[str, int] = {
    "architecture": 60,
    "backends": 300,
    "catalogue": 60,
    "cli": 180,
    "compiler": 150,
    "conformance": 360,
    "docs": 60,
    "examples": 90,
    "features": 180,
    "golden": 30,
    "graphspec": 60,
    "oracle": 30,
    "properties": 300,
    "resilience": 150,
    "runtime": 120,
    "suite": 20,
}
"""Seconds by the clock, by folder of tests/, where nothing else keeps the machine busy."""

"""How many seconds the tests of each area may take: more is no failure, but is said in a word."""

from __future__ import annotations

from collections.abc import Mapping

CORES = 2
MINUTES = 18
"""What the whole suite may take on so many cores."""

BUDGETS: Mapping[str, int] = {
    "architecture": 60,
    "backends": 200,
    "catalogue": 45,
    "cli": 75,
    "compiler": 70,
    "conformance": 690,
    "docs": 70,
    "examples": 70,
    "features": 110,
    "golden": 30,
    "graphspec": 30,
    "oracle": 10,
    "properties": 420,
    "resilience": 180,
    "runtime": 80,
    "suite": 20,
}
"""Seconds by the clock, by folder of tests/, where nothing else keeps the machine busy."""

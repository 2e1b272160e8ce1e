"""How many seconds the tests of each area may take: more is no failure, but is said in a word."""

from __future__ import annotations

from collections.abc import Mapping

CORES = 2
MINUTES = 19
"""What the whole suite may take on so many cores."""

BUDGETS: Mapping[str, int] = {
    "architecture": 45,
    "backends": 140,
    "catalogue": 25,
    "cli": 50,
    "compiler": 65,
    "conformance": 650,
    "docs": 65,
    "examples": 60,
    "features": 190,
    "golden": 20,
    "graphspec": 25,
    "hostile": 20,
    "limits": 60,
    "oracle": 5,
    "peers": 60,
    "properties": 640,
    "resilience": 75,
    "runtime": 30,
    "suite": 5,
}
"""Seconds by the clock, by folder of tests/, where nothing else keeps the machine busy."""

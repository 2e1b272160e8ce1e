"""How many seconds the tests of each area may take: more is no failure, but is said in a word."""

from __future__ import annotations

from collections.abc import Mapping

CORES = 2
MINUTES = 19
"""What the whole suite may take on so many cores."""

BUDGETS: Mapping[str, int] = {
    "architecture": 47,
    "backends": 270,
    "catalogue": 28,
    "cli": 50,
    "compiler": 70,
    "conformance": 625,
    "docs": 60,
    "examples": 65,
    "features": 320,
    "golden": 35,
    "graphspec": 30,
    "hostile": 10,
    "limits": 45,
    "oracle": 5,
    "peers": 45,
    "properties": 445,
    "resilience": 80,
    "runtime": 45,
    "suite": 5,
}
"""Seconds by the clock, by folder of tests/, where nothing else keeps the machine busy."""

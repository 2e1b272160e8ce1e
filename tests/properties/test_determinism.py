"""The same spec gives the same bytes, whatever the seed of Python's hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "42", "4294967295")


@pytest.mark.long
def test_hash_seeds_give_the_same_plans_and_sources():
    command = [sys.executable, "-m", "tests.properties.fingerprints", "6"]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in SEEDS
    ]
    found = [process.communicate()[0].strip() for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len(found[0]) == 64
    assert set(found) == {found[0]}

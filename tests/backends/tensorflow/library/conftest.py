"""These tests compare both frameworks in one process: without one of them there is nothing to compare."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("tensorflow") else ["test_*.py"]

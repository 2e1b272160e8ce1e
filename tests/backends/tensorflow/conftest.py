"""These tests build steps of TensorFlow: without it there is nothing to build."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tensorflow") else ["test_*.py"]

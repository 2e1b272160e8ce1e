"""Every spec of the tree: the examples, the goldens and the templates."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SPECS = sorted(
    path
    for folder in ("examples", "tests/golden/valid", "runtime/templates")
    for path in (ROOT / folder).rglob("*.yaml")
)
NAMES = [str(path.relative_to(ROOT)) for path in SPECS]

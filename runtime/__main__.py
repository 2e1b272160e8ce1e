"""``python -m runtime``: the command ``stepgraph`` where it is not installed."""

from __future__ import annotations

from runtime.cli import main

if __name__ == "__main__":
    main()

"""Try what the tests prove on a CPU on another device: ``python -m tests.gpu [--device cuda] [NAME ...]``.

It needs PyTorch and what the product imports, no network, no pytest and no installation. The page is written after
every case, so that what was measured stays where a run is stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

NEEDED: Mapping[str, str] = {
    "torch": "torch",
    "numpy": "numpy",
    "pydantic": "pydantic",
    "msgspec": "msgspec",
    "yaml": "pyyaml",
    "networkx": "networkx",
    "safetensors": "safetensors",
}
"""What the checks import, and the distribution that has it."""
ROOT = Path(__file__).parents[2]


def main(given: Sequence[str] | None = None) -> int:
    """Try all checks, or those with some names; return 1 where something is wrong, 2 where nothing can be tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540.0, help="for all checks (540)")
    parser.add_argument("--most", type=int, help="how many cases of a check are tried")
    parser.add_argument("--out", type=Path, help="the page (docs/gpu.md on CUDA, else none)")
    parser.add_argument("--wheels", action="store_true", help="print what is needed besides PyTorch, and end")
    parser.add_argument("--missing", action="store_true", help="print what of it is not installed, and end")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a check (docs/gpu.md)")
    options = parser.parse_args(given)
    missing = [name for module, name in NEEDED.items() if find_spec(module) is None]
    if options.wheels or options.missing:
        print(*(each for each in (missing if options.missing else NEEDED.values()) if each != "torch"))
        return 0
    if missing:
        listed = " ".join(missing)
        print(
            f"make gpu: {sys.executable} lacks {listed}; with a network: pip install {listed}\n"
            "make gpu: without one: `make wheels` elsewhere, then `make gpu WHEELS=folder` here (docs/gpu.md)",
            file=sys.stderr,
        )
        return 2
    return try_device(options, parser)


def try_device(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Try the checks on a device, write the page, and print what is wrong."""
    from tests.gpu import page
    from tests.gpu.checks import CHECKS
    from tests.gpu.watching import Watch, command

    if unknown := set(options.names) - {each.name for each in CHECKS}:
        parser.error(f"no check is named {', '.join(sorted(unknown))}")

    try:
        place = page.describe_place(options.device)
    except Exception as error:
        print(f"make gpu: {error}", file=sys.stderr)
        return 2
    checks = [each for each in CHECKS if not options.names or each.name in options.names]
    out = options.out or (page.PAGE if options.device.startswith("cuda") and not options.names else None)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # products are then the same in every run
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    until = time.time() + options.seconds
    watch = Watch(
        command=command(options.device, until, options.names, options.most),
        until=until,
        show=lambda tallies: out and page.write(out, place, checks, tallies),
    )
    tallies = watch.run()
    print(*page.results(place, checks, tallies), sep="\n")
    if watch.trouble:
        print(f"make gpu: {watch.trouble}", file=sys.stderr)
        return 2
    return int(any(each.problems for each in tallies.values()) or not any(each.done for each in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())

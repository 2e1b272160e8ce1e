"""Train examples and judge what they reach: `python examples/judge.py byol`, or all of them without a name.

Everything before the judgement is the command line of stepgraph, each command printed as it can be typed. What counts
as passed stands in the `judgement.py` of each example. Ends with exit code 1 where one does not pass.
"""

from __future__ import annotations

import argparse
import itertools
import os
import runpy
import sys
import time
from pathlib import Path

from trial import Trial, tell

EXAMPLES = Path(__file__).parent
NAMES = (
    *("distillation", "mean-teacher", "byol", "td3", "dqn", "maml", "sam", "sparse-embeddings", "lookahead", "swa"),
    *("diffusion", "vq-vae", "simclr", "ppo", "progressive-gan"),
)


def main() -> int:
    """Judge the examples that are asked for and return the exit code."""
    parser = argparse.ArgumentParser(description="Train examples and judge what they reach.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: all of them)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of weights, random numbers and data (default: 0)")
    parser.add_argument("--steps", type=int, help="train so many steps, which may be too few to pass")
    parser.add_argument("--out", type=Path, default=Path("judged"), help="where runs go (default: judged)")
    arguments = parser.parse_args()
    unknown = sorted({*arguments.names} - {*NAMES})
    if unknown:
        parser.error(f"no example {unknown[0]!r}: there are {', '.join(NAMES)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for torch, before it is imported: models this small gain nothing
    passed = [judge(name, arguments) for name in arguments.names or NAMES]
    return 0 if all(passed) else 1


def judge(name: str, arguments: argparse.Namespace) -> bool:
    """Train one example, print its figures, and return whether they pass."""
    began, example = time.perf_counter(), EXAMPLES / name
    trial = Trial(
        example=example,
        out=make_folder(arguments.out, name),
        seed=arguments.seed,
        steps=arguments.steps,
    )
    sys.path.append(str(example))  # where the judgement finds what lies beside it
    judgement = runpy.run_path(str(example / "judgement.py"))
    passed = tell(f"{name}, seed {trial.seed}: {judgement['__doc__']}", judgement["judge"](trial))
    print(f"{'PASS' if passed else 'FAIL'}: {name}, seed {trial.seed}, {time.perf_counter() - began:.0f} s")
    return passed


def make_folder(parent: Path, name: str) -> Path:
    """Make and return a folder that no earlier trial has used."""
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        if not folder.exists():
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("counting ends never")


if __name__ == "__main__":
    sys.exit(main())

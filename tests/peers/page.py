"""The page of peers, generated from the cases: ``python -m tests.peers.page``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.peers.cases import Case
from tests.peers.reasons import PAGES

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "peers.md"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A project and the location of its tests."""

    name: str
    tests: str
    """Folders or files in its repository."""


PEERS: Mapping[str, Peer] = {
    "keras": Peer(name="Keras 3", tests="`keras/src/{optimizers,losses,constraints,regularizers}`"),
    "torch": Peer(name="PyTorch", tests="`test/optim/test_lrscheduler.py`, `test/test_cuda.py`, `test/test_nn.py`"),
    "tensorflow": Peer(name="TensorFlow", tests="`tensorflow/python/training`"),
    "optax": Peer(name="optax", tests="`optax/{schedules,losses,transforms,_src}`"),
    "composer": Peer(name="Composer", tests="`tests/optim`, `tests/algorithms`"),
    "fastestimator": Peer(name="FastEstimator", tests="`test/PR_test`"),
    "mxnet": Peer(name="MXNet", tests="`tests/python/unittest`"),
    "averages": Peer(
        name="averages",
        tests="timm 1.0.31, diffusers 0.42.1, Composer 0.32.1, MMEngine 0.10.7, ema-pytorch 0.8.3, PyTorch 2.13.0, "
        "Keras 3.15.1, run on one way",
    ),
}
"""By the folder of their cases."""

FEATURES: Mapping[str, str] = {
    "averages/test_trajectories": "E2 E3 E8 E9 E10",
    "composer/test_averages": "E1 E2",
    "composer/test_schedules": "A14 C9",
    "fastestimator/test_ops": "A1 A2 A5 A12 A14 A19",
    "keras/test_losses": "A19",
    "keras/test_optimizers": "C1 C8",
    "keras/test_schedules": "A14 C9",
    "keras/test_training": "A5 A8 B1 B2 D8 D9",
    "mxnet/test_gluon": "A19 C1 C8 C9",
    "optax/test_losses": "A19",
    "optax/test_schedules": "A14 C9",
    "optax/test_transforms": "A5 A19 B2 C8 D8",
    "tensorflow/test_optimizers": "C1 C9 D1 D4 D8 D9",
    "tensorflow/test_scales": "B1 B2 B3",
    "torch/test_scales": "B1 B2",
    "torch/test_schedules": "A14 C9",
}
"""The rows of the page of features that the cases of a module belong to."""

HEAD = """# What the peers' own tests say

Other projects test optimizers, schedules, losses, clips, loss scales and averages too, and many of their tests
print initial values, gradients and results. Each case here takes the numbers of one such test, writes the same
program as a spec, runs it on both backends, and expects the same numbers. Only facts and figures are taken; the code
is our own.

A case has the name of the peer's test. Brackets after it are ours: they say which of several numbers it is, or what
was changed. For averages, the libraries themselves were run along one way of the weights, in the versions that the
table names, and a case has the name of a class (`python -m tests.peers.averages.libraries` runs them again). Where a
peer draws random numbers, the case has fixed ones and the formula of the peer's test. This page is generated from the
cases (`python -m tests.peers.page`), and a test keeps it up to date.
"""

TAIL = """## How to read a case

```text
descent(
    "sgd_test.py::test_single_step",
    {"name": "sgd", "lr": 0.5},     # the optimizer
    [1.0, 2.0, 3.0, 4.0],           # the weights at the start
    [[1.0, 6.0, 7.0, 2.0]],         # the gradient of each step
    {1: [0.5, -1.0, -0.5, 3.0]},    # the weights after step 1, from Keras's test
)
```

The tolerance is that of the peer's test. Where a number differs by design, the case has both numbers and the
reason, and often the peer's formula as well ([rules](../tests/peers/rules.py)). Such a case also fails if ours
becomes the peer's number.

## What is left out

- Tests that need several processes: [processes](processes.md) are compared with one process instead.
- What has no name here: AMSGrad; rates that react to a plateau, inverse-time decay, products of schedules, cosines
  with an exponent; log-cosh, squared hinge and percentage losses. Many of these can be written with `call` or your
  own function.
- Cases of what was added later and has tests of its own: Ftrl, Adafactor, LAMB, LARS, Muon, Poisson losses, and parts
  that are repeated or chosen.
- Tests of an interface alone (configurations, pickles, names, types), and tests that only compare random results
  with each other.
"""


def find_cases() -> Iterator[tuple[str, str, Case]]:
    """Yield all cases, with the folder of the peer and the name of the module."""
    for folder in PEERS:
        for path in sorted((FOLDER / folder).glob("test_*.py")):
            for case in import_module(f"tests.peers.{folder}.{path.stem}").CASES:
                yield folder, path.stem, case


def make_page() -> str:
    """Return the page."""
    return "\n".join((HEAD, *_tell_peers(), *_tell_modules(), *_tell_differences(), TAIL))


def _tell_peers() -> Iterator[str]:
    """Yield a row for each peer."""
    cases = Counter(folder for folder, _, _ in find_cases())
    differ = Counter(folder for folder, _, case in find_cases() if case.differs)
    yield "| peer | its tests | cases | the same numbers | others by design |\n|---|---|---:|---:|---:|"
    for folder, peer in PEERS.items():
        same = cases[folder] - differ[folder]
        yield f"| {peer.name} | {peer.tests} | {cases[folder]} | {same} | {differ[folder]} |"
    total, others = sum(cases.values()), sum(differ.values())
    yield f"| all | | {total} | {total - others} | {others} |\n"


def _tell_modules() -> Iterator[str]:
    """Yield a row for each module of cases."""
    yield "The modules, and the rows of the [page of features](features.md) that they belong to:\n"
    yield "| cases | module | features |\n|---:|---|---|"
    cases = Counter(f"{folder}/{module}" for folder, module, _ in find_cases())
    for name in sorted(cases):
        yield f"| {cases[name]} | [{name}.py](../tests/peers/{name}.py) | {FEATURES[name]} |"
    yield ""


def _tell_differences() -> Iterator[str]:
    """Yield a row for each reason."""
    yield "## Where numbers differ, and why\n\n| here | cases | of | more |\n|---|---:|---|---|"
    found: dict[str, list[str]] = {reason: [] for reason in PAGES}
    for folder, _, case in find_cases():
        if case.differs:
            found[case.differs.why].append(PEERS[folder].name)
    for reason, peers in found.items():
        page = PAGES[reason]
        more = f"[{page.partition('.')[0]}]({page})"
        yield f"| {reason} | {len(peers)} | {', '.join(sorted(set(peers)))} | {more} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")

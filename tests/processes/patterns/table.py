"""The patterns, how each is trained, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor

from compiler import compile_step
from graphspec import load
from runtime import build
from tests.processes.patterns import by_hand, specs
from tests.processes.patterns.by_hand import DDP, FSDP2, Accelerate, Alone, Detector, Loop, make_layers

WORLD = 2
MOST = 1e-10
"""How far weights may be from those of one process."""
Weights = Mapping[str, np.ndarray]
"""Weights by their names in the state of a step: ``models.net.0.weight``."""
Nets = Mapping[str, nn.Module]
"""Nets by what the names of their weights begin with."""


def make_net() -> Nets:
    """Return the net of most patterns."""
    return {"models.net": make_layers(4, 5, 3)}


def make_gan() -> Nets:
    """Return both players."""
    return {"models.generator": make_layers(4, 5, 4), "models.discriminator": make_layers(4, 5, 1)}


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A pattern of steps: as a spec, and as loops by hand."""

    title: str
    spec: str
    loops: Mapping[str, Loop]
    """The loop by hand; where there are several ways to write it, each by what it does."""
    nets: Callable[[], Nets] = make_net
    options: Mapping[str, Mapping[str, bool]] = field(default_factory=dict[str, Mapping[str, bool]])
    """With what else the loop is tried: options of wrappers, by the words for them."""
    remedy: Loop | None = None
    """Another loop, which is right under DistributedDataParallel where that one is not."""
    says: str = ""
    """What that loop does."""

    def start(self) -> Nets:
        """Return the nets with their first weights, in float64."""
        torch.manual_seed(0)
        return {name: net.double() for name, net in self.nets().items()}


PATTERNS = (
    Pattern(title="one forward, one backward", spec=specs.ONE_BACKWARD, loops={"": by_hand.take_one_backward}),
    Pattern(
        title="two forwards, then two backwards",
        spec=specs.TWO_FORWARDS,
        loops={"": by_hand.take_two_forwards},
        remedy=by_hand.add_two_forwards,
        says="one backward of the sum",
    ),
    Pattern(
        title="`torch.autograd.grad` for `.backward()`",
        spec=specs.GRADIENTS,
        loops={"": by_hand.take_gradients},
        remedy=by_hand.reduce_gradients,
        says="`all_reduce` of each gradient",
    ),
    Pattern(
        title="one forward, two backwards",
        spec=specs.TWO_BACKWARDS,
        loops={"": by_hand.take_two_backwards},
        remedy=by_hand.add_two_losses,
        says="one backward of the sum",
    ),
    Pattern(
        title="a mean over rows and one over labels",
        spec=specs.COUNTS,
        loops={"": by_hand.take_two_counts},
        remedy=by_hand.share_counts,
        says="a sum, divided by the count of all",
    ),
    Pattern(
        title="gradients of two steps, with `no_sync` and without",
        spec=specs.WINDOW,
        loops={"with `no_sync`": by_hand.take_windows, "without": by_hand.take_synced_windows},
    ),
    Pattern(
        title="gradient penalty",
        spec=specs.PENALTY,
        loops={"": by_hand.take_penalties},
        nets=lambda: {"models.critic": make_layers(4, 5, 1)},
        options={"gathered as a whole": {"whole": True}},
    ),
    Pattern(
        title="GAN: a generator's gradient through the discriminator",
        spec=specs.GAN,
        loops={"": by_hand.train_gan},
        nets=make_gan,
    ),
    Pattern(
        title="a head that runs where a row needs it",
        spec=specs.RARE,
        loops={"": by_hand.take_rare_rows},
        remedy=by_hand.score_all_rows,
        says="the head on all rows, the sum divided by the count of all",
        nets=lambda: {"models": Detector(make_layers(4, 5, 3), make_layers(3, 3))},
        options={"with `find_unused_parameters`": {"unused": True}},  # which a message proposes
    ),
)
WRAPPERS: Mapping[str, Callable[..., Alone]] = {"DDP": DDP, "FSDP2": FSDP2, "Accelerate": Accelerate}
KINDS = ("replicated", "sharded")
OURS = "stepgraph"
PAGE = Path(__file__).parents[3] / "docs" / "processes.md"


def read_page() -> Mapping[str, Mapping[str, str]]:
    """Return the cells of the table on the page, by pattern and column."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## By hand\n")
    rows = [line.strip("| ").split(" | ") for line in section.partition("\n## ")[0].splitlines() if line[:2] == "| "]
    return {title: dict(zip(rows[0][1:], cells, strict=True)) for title, *cells in rows[1:]}


def split(value: np.ndarray, rank: int, world: int) -> np.ndarray:
    """Return the rows of a process."""
    return np.array_split(value, world)[rank]


def read(nets: Mapping[str, nn.Module]) -> Weights:
    """Return the weights of nets."""
    return {
        f"{prefix}.{name.removeprefix('module.')}": (weight.full_tensor() if isinstance(weight, DTensor) else weight)
        .detach()
        .clone()
        .numpy()
        for prefix, net in nets.items()
        for name, weight in net.named_parameters()
    }


def train_by_hand(pattern: Pattern, loop: Loop, by: Alone, rank: int = 0, world: int = 1) -> Weights:
    """Return the weights after all steps of a loop by hand, as one of some processes."""
    batches = [
        {name: torch.tensor(split(value, rank, world)) for name, value in specs.draw(number).items()}
        for number in range(specs.STEPS)
    ]
    nets = {name: by.wrap(net) for name, net in pattern.start().items()}
    pairs = [(net, torch.optim.SGD(net.parameters(), lr=specs.RATE)) for net in nets.values()]
    loop(by, batches, *(each for pair in pairs for each in pair))
    return read(nets)


def train_spec(pattern: Pattern, kind: str, rank: int, world: int) -> Weights:
    """Return the weights after all steps of the spec, as one of some processes."""
    plan = compile_step(load(pattern.spec, [f"parallel={{kind: {kind}}}"]))
    step = build(plan, device="cpu", dtype="float64")
    held = step.state()
    step.restore(replace(held, arrays={**held.arrays, **read(pattern.start())}))
    for number in range(specs.STEPS):
        step({name: split(specs.draw(number)[name], rank, world) for name in plan.spec.inputs})
    return {name: value for name, value in step.state().arrays.items() if name.startswith("models.")}


def find_truth(pattern: Pattern) -> tuple[Weights, float]:
    """Return the weights of one process on all rows, and how far the one that moves most has moved."""
    first, *others = (train_by_hand(pattern, loop, Alone()) for loop in pattern.loops.values())
    start = read(pattern.start())
    assert all(find_gap(first, each) <= MOST for each in others)
    return first, find_gap(first, start)


def find_gap(one: Weights, other: Weights) -> float:
    """Return the largest difference of two sets of weights with the same names."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)

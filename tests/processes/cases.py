"""Specs that replicas train: each without `parallel`, which the processes add."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from compiler import Plan, compile_step
from graphspec import load
from graphspec.declare.graph import GraphSpec
from runtime import Step, build
from tests.conformance.programs import actor_critic, cyclegan, gan, one_loss
from tests.processes.gathered import CLIP, COUNTED, MIXED, SIMCLR, SLOPES

STEPS, MORE = 5, 10
"""The steps of a case, in every test run and in the long set."""
FOLDER = Path(__file__).parents[2] / "examples"
ADAM = "{name: adam, lr: 0.05}"
GENERATOR, CRITIC = "[{linear: 5}, tanh, {linear: 6}]", "[{linear: 5}, tanh, {linear: 1}]"
"""Layers that couple no rows, in place of the classes and the BatchNorm of the programs."""


def take(text: str) -> str:
    """Return a published program without its version and name, with an optimizer; models are made of layers."""
    text = re.sub(r'class: "nets:Generator", traits: {.*?}', f"layers: {GENERATOR}", text)
    text = re.sub(r'class: "nets:Critic", traits: {.*?}', f"layers: {CRITIC}", text)
    text = text.replace("batch_norm, ", "").replace("OPTIMIZER", ADAM)
    return re.sub(r"^(graphspec|name): .*\n", "", text, flags=re.MULTILINE)


DCGAN, SIMULTANEOUS = take(gan.DCGAN), take(gan.SIMULTANEOUS)
PENALTY = """
inputs: {x: {shape: [batch, 4]}}
models: {critic: {layers: [{linear: 6}, tanh, {linear: 1}], optimizer: {name: adam, lr: 0.05}}}
ops:
  noise: {random: normal, shape: [batch, 4]}
  eps: {random: uniform, shape: [batch, 1]}
  moved: {call: add, inputs: [x, noise]}
  mixed: {call: mul, inputs: [moved, eps]}
  score: {forward: critic, inputs: mixed}
  total: {call: sum, inputs: score}
  slope: {gradient: total, wrt: mixed}
  length: {call: norm, inputs: slope, args: {axis: 1}}
  penalty: {loss: mse, inputs: [length, 1.0], weight: 10.0}
  real: {forward: critic, inputs: x}
  plain: {loss: wasserstein, inputs: real}
  loss: {call: add, inputs: [plain, penalty]}
  step: {update: critic, loss: loss}
outputs: [loss, penalty, slope]
"""
FIT = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 5}, tanh, {linear: 2}], optimizer: {name: adam, lr: 0.05}}
"""
SHARED_SET = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models:
  net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
  other: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
ops:
  one: {forward: net, inputs: x}
  two: {forward: other, inputs: x}
  out: {call: add, inputs: [one, two]}
  loss: {loss: mse, inputs: [out, y]}
  slope: {gradient: loss, wrt: [net, other]}
  step: {update: net, gradients: slope, accumulate: 2}
  step_other: {update: other, gradients: slope}
"""
PLAIN = """
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
"""
EVERYTHING = """
state: {level: {shape: [], init: zeros}}
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, y]}
  size: {loss: l1, inputs: [out, 0.0], reduction: sum, weight: 0.1}
  rare: {loss: huber, inputs: [out, 0.5], every: 2}
  loss: {call: add, inputs: [fit, size, rare]}
  step: {update: net, loss: loss, clip: {norm: 0.5}}
  slow: {ema: net, decay: 0.9}
  mean: {call: mean, inputs: out}
  keep: {assign: level, value: mean}
  far: {call: sub, inputs: [out, y]}
  error: {metric: mean, inputs: far}
  seen: {metric: mean, inputs: x, reset: never}
outputs: [loss, fit, size, error, seen, out, mean]
"""
LABELS = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch], dtype: int64}}
models: {net: {layers: [{linear: 5}, tanh, {linear: 3}], optimizer: {name: adam, lr: 0.05}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: cross_entropy, inputs: [out, y], args: {ignore_index: 0}}
  step: {update: net, loss: loss, ACCUMULATE}
  right: {metric: accuracy, inputs: [out, y]}
outputs: [loss, right]
"""
SURGERY = """
ops:
  out: {forward: net, inputs: x}
  one: {loss: mse, inputs: [out, y]}
  two: {loss: l1, inputs: [out, 1.0]}
  g_one: {gradient: one, wrt: net}
  g_two: {gradient: two, wrt: net}
  both: {transform: pcgrad, inputs: [g_one, g_two]}
  step: {update: net, gradients: both}
"""
TIED = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 4]}}
models:
  one: {layers: [{linear: 4}, tanh], optimizer: {name: sgd, lr: 0.1}}
ops:
  a: {forward: one, inputs: x}
  b: {forward: one, inputs: a}
  loss: {loss: mse, inputs: [b, y]}
  step: {update: one, loss: loss}
"""
COLUMNS = """
inputs: {x: {shape: [batch, 4]}}
models: {factors: {parameter: {shape: [4], init: ones}, optimizer: {name: adam, lr: 0.05}}}
ops:
  times: {forward: factors}
  scaled: {call: mul, inputs: [x, times]}
  loss: {loss: l1, inputs: [scaled, 0.0]}
  step: {update: factors, loss: loss}
"""
VARIED = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models:
  net:
    layers: [{linear: 5}, layer_norm, tanh, {linear: 5}, tanh, {linear: 2}]
    optimizer: {name: adam, lr: 0.05}
    groups: [{match: "^0", frozen: true}, {match: "^5[.]bias$", lr_scale: 2.0}, {match: "^3", frozen: {until: 2}}]
    regularizer: {l2: 0.1, match: weight}
  factor: {parameter: {shape: [], init: ones}, optimizer: {name: rmsprop, lr: 0.05}}
  shift:
    parameter: {shape: [3], init: zeros}
    optimizer: {name: schedule_free_adamw, lr: 0.05}
    constraint: {clip: [0, 1]}
  copied: {like: net}
  teacher: {like: net}
ops:
  raw: {forward: net, inputs: x, checkpoint: true}
  times: {forward: factor}
  plus: {forward: shift}
  level: {call: mean, inputs: plus}
  scaled: {call: mul, inputs: [raw, times]}
  out: {call: add, inputs: [scaled, level]}
  fit: {loss: mse, inputs: [out, y]}
  taught: {forward: teacher, inputs: x}
  agree: {loss: mse, inputs: [out, taught]}
  loss: {call: add, inputs: [fit, agree]}
  step: {update: [net, factor, shift], loss: loss, clip: {norm: 0.2, per: parameter}}
  keep: {copy: net, into: copied, every: 2}
  follow: {ema: net, into: teacher, decay: 0.8, match: weight}
"""
NORMED = (
    """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models: {net: {layers: [batch_norm, {linear: 2}], optimizer: sgd}}
"""
    + PLAIN
)
SYNC = "{batch_norm: {sync: true}}"
SYNCED = FIT.replace("tanh", f"{SYNC}, tanh").replace("adam", "sgd")
"""An offset before BatchNorm has no gradient: Adam would divide what rounding leaves of it by as little."""
DROPPING = """
inputs: {x: {shape: [batch, 64]}}
models: {net: {layers: [{dropout: 0.5}, {linear: {out: 1, bias: false}}], optimizer: sgd}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, 0.0]}
  step: {update: net, loss: loss}
outputs: [out]
"""


ADDED = """
ops:
  out: {forward: net, inputs: x}
  fit: {loss: mse, inputs: [out, y]}
  size: {loss: l1, inputs: [out, 0.0], reduction: sum, weight: 0.1}
  half: {call: mul, inputs: [size, 0.5]}
  loss: {call: add, inputs: [fit, half]}
  slope: {gradient: fit, wrt: out}
  step: {update: net, loss: loss, clip: {norm: 0.5}}
outputs: [loss, fit, slope]
"""
"""A mean and a sum, the slope of the mean, and a clip of what processes add up."""


BY_UPDATE = """
inputs: {x: {shape: [batch, 4]}, y: {shape: [batch, 2]}}
models:
  one: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
  two: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
  three: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.1}}
ops:
  by_one: {forward: one, inputs: x}
  by_two: {forward: two, inputs: x}
  by_three: {forward: three, inputs: x}
  out: {expr: "by_one * by_two + by_three"}
  loss: {loss: mse, inputs: [out, y]}
  slope: {gradient: loss, wrt: two}
  half: {call: mul, inputs: [slope, 0.5]}
  step_one: {update: one, loss: loss, reduce: sum}
  step_two: {update: two, gradients: half, reduce: sum}
  step_three: {update: three, loss: loss, reduce: mean}
outputs: [loss]
"""
"""Two updates that add up what processes have, and one that takes the mean, whatever `parallel` says."""


@dataclass(frozen=True)
class Case:
    """A spec, and the batch in which one rank meets an infinity."""

    text: str = ""
    head: str = ""
    """Further keys of the document."""
    overflow: int = -1
    """The step in which the last row of the batch is infinite."""
    corner: bool = False
    """Only the last number of that row is."""
    eval: bool = False
    last: int = 0
    """The rows of the last batch, if it has others."""
    buffers: str = "rank0"
    example: str = ""
    """The path of a spec below `examples`, in place of a text."""
    allow: tuple[str, ...] = ()
    """The packages that it imports classes of."""
    labels: int = 3
    """How many there are of each input with labels."""


SCALE = "precision: {loss_scale: dynamic}"
CASES: Mapping[str, Case] = {
    "simultaneous": Case(SIMULTANEOUS),
    "dcgan": Case(DCGAN),
    "cyclegan": Case(take(cyclegan.JOINT)),
    "cyclegan, two updates": Case(take(cyclegan.SEPARATE)),
    "td3": Case(take(actor_critic.TD3)),
    "strangers": Case(take(one_loss.STRANGERS)),
    "penalty": Case(PENALTY),
    "penalty alone": Case(PENALTY.replace("{forward: critic, inputs: x}", "{call: mul, inputs: [score, 1.0]}")),
    "penalty portable": Case(PENALTY, "rng: portable"),
    "everything": Case(FIT + EVERYTHING, eval=True),
    "everything in parts": Case(FIT + EVERYTHING, "micro_batches: 2"),
    "cyclegan in parts": Case(take(cyclegan.JOINT), "micro_batches: 2"),
    "window of a shared set": Case(SHARED_SET),
    "accumulated": Case(FIT + PLAIN.replace("loss: loss}", "loss: loss, accumulate: 2}")),
    "accumulated in parts": Case(FIT + PLAIN.replace("loss: loss}", "loss: loss, accumulate: 2}"), "micro_batches: 2"),
    "counted": Case(LABELS.replace(", ACCUMULATE", "")),
    "counted over steps": Case(LABELS.replace("ACCUMULATE", "accumulate: 2")),
    "scaled": Case(DCGAN, SCALE, overflow=2),
    "own": Case(SIMULTANEOUS.replace("loss: d_loss}", "loss: d_loss, on_overflow: own}"), SCALE, overflow=2),
    "corner": Case(COLUMNS, SCALE, overflow=2, corner=True),
    "dropped": Case(
        FIT + PLAIN.replace("loss: loss}", "loss: loss, accumulate: {steps: 2, on_nonfinite: drop}}"), SCALE, 2
    ),
    "spoiled": Case(
        FIT + PLAIN.replace("loss: loss}", "loss: loss, accumulate: {steps: 2, on_nonfinite: window}}"), SCALE, 2
    ),
    "surgery": Case(FIT + SURGERY),
    "twice": Case(TIED),
    "synced": Case(SYNCED + PLAIN, eval=True),
    "synced penalty": Case(
        PENALTY.replace("[{linear: 6}, tanh,", f"[{{linear: 6}}, {SYNC}, tanh,").replace("adam", "sgd")
    ),
    "varied": Case(VARIED),
    "contrastive": Case(SIMCLR, eval=True, last=6),
    "contrastive over steps": Case(SIMCLR.replace("loss: loss}", "loss: loss, accumulate: 2}"), last=6),
    "contrastive synced": Case(SIMCLR.replace("[{linear: 5}", f"[{{linear: 5}}, {SYNC}"), eval=True),
    "contrastive scaled": Case(SIMCLR, SCALE, overflow=2),
    "contrastive dropped": Case(
        SIMCLR.replace("loss: loss}", "loss: loss, accumulate: {steps: 2, on_nonfinite: drop}}"), SCALE, 2
    ),
    "temperature": Case(CLIP, last=4),
    "gathered and own": Case(MIXED, eval=True),
    "gathered and counted": Case(COUNTED.replace("loss: loss}", "loss: loss, accumulate: 2}")),
    "slopes of gathered": Case(SLOPES),
}
"""Cases in which replicas have the numbers of one process."""
ADDING: Mapping[str, Case] = {
    "added": Case(FIT + ADDED),
    "added in parts": Case(FIT + ADDED.replace("slope, ", "").replace(", slope", ""), "micro_batches: 2"),
    "added by updates": Case(BY_UPDATE),
    "added by updates in parts": Case(BY_UPDATE, "micro_batches: 2"),
    "added in windows": Case(FIT + ADDED.replace("clip:", "accumulate: {steps: 2, reduce: sum}, clip:")),
}
"""Cases in which processes add up the gradients that they have on their own rows."""
EXAMPLES: Mapping[str, Case] = {
    f"example {Path(path).stem}": Case(example=path, allow=("zoo", "keras_zoo"), labels=2)
    for path in (
        "autoencoder/autoencoder.yaml",
        "autoencoder/autoencoder-decoder-first.yaml",
        "custom-classes/custom.yaml",
        "cyclegan/cyclegan.yaml",
        "cyclegan-separate/cyclegan-separate.yaml",
        "diffusion/diffusion.yaml",
        "dqn/dqn.yaml",
        "fgsm/fgsm.yaml",
        "lookahead/lookahead.yaml",
        "moco/moco.yaml",
        "pcgrad/pcgrad.yaml",
        "sac/sac.yaml",
        "simultaneous-gan/simultaneous-gan.yaml",
        "td3/td3.yaml",
        "tied-lm/tied-lm.yaml",
        "uncertainty/uncertainty.yaml",
        "wgan-gp/wgan-gp.yaml",
    )
}
"""The examples that couple no rows, and draw nothing in their layers."""
ALONE: Mapping[str, Case] = {
    **{how: Case(NORMED, buffers=how) for how in ("rank0", "mean", "local")},
    "dropping": Case(DROPPING),
}
"""Cases in which replicas differ from one process."""
SOME = ("dcgan", "penalty", "everything", "counted over steps", "dropped", "contrastive", "gathered and own")


SENT: Mapping[str, Case] = {
    "sent": Case(FIT + PLAIN),
    "sent, broken": Case(FIT + PLAIN, overflow=2),
    "sent after windows": Case(FIT + PLAIN.replace("loss: loss}", "loss: loss, accumulate: 3}")),
}
"""Cases whose gradients are compressed."""
RESUMED = ("sent", "sent after windows")
"""Those that end in the middle, and begin again from their state: the second one with an open window."""


@dataclass(frozen=True)
class Run:
    """Some cases that several processes train: how they share the weights, their number, the rows of a batch."""

    kind: str
    world: int
    rows: int
    names: tuple[str, ...]
    options: str = ""
    """Further options of `parallel`."""
    steps: int = STEPS
    last: int = 0
    """The rows of the last batch of a case that does not say so itself, if it has others."""

    @property
    def title(self) -> str:
        """Return what tells it from other runs."""
        return " ".join(filter(None, (self.kind, str(self.world), self.options.replace(": ", " "))))

    def path(self, folder: Path, name: str, rank: int) -> Path:
        """Return the file with what a process found in a case."""
        return folder / f"{name}.{self.title}.{rank}.npz"

    def compile(self, case: Case) -> Plan:
        """Return the plan of a case, the same for each of its processes."""
        return compile_step(read_spec(case, self.kind, self.options))

    def make_step(self, case: Case) -> Step:
        """Return the step of a case as one of its processes."""
        return build_step(case, self.compile(case))


ALL = (*CASES, *EXAMPLES)
TOLD = ("cyclegan in parts", "contrastive")
"""Trained once more by processes that know how many rows all of them have."""
ADDED_BY_UPDATES = ("added by updates", "added by updates in parts")
FEW = ("example wgan-gp",)
"""The examples of every test run."""
LATER = (
    "cyclegan, two updates",
    "td3",
    "penalty portable",
    "accumulated in parts",
    "contrastive over steps",
    "contrastive synced",
    "contrastive dropped",
)
"""Cases of the long set alone: what two others show apart, together."""
REPLICATED = Run("replicated", 2, 5, (*(name for name in CASES if name not in LATER), *ALONE, *ADDED_BY_UPDATES, *FEW))
SHARDED = Run(
    "sharded",
    2,
    5,
    (
        *(name for name in SOME if name != "penalty"),
        "added by updates",
        "penalty alone",
        "cyclegan in parts",
        "corner",
        "surgery",
        "varied",
    ),
)
ADDED_UP = Run("replicated", 2, 5, (*ADDING,), "reduce: sum")
COMPRESSED = tuple(
    Run("replicated", 2, 5, (*SENT,), f"compress: {kind}")
    for kind in (
        "fp16",
        "bf16",
        "{kind: threshold, threshold: 0.02}",
        "{kind: sign, threshold: 0.01}",
        "{kind: powersgd, rank: 1}",
    )
)
BUCKETS = Run("replicated", 2, 5, ("strangers", "accumulated in parts", "everything"), "bucket_mb: 0.0001")
"""Every message of gradients is cut into many."""
RARE = (COMPRESSED[0], COMPRESSED[3])
"""Runs of the long set: float16 is sent as bfloat16 is, and signs as multiples of a threshold."""
RUNS = (REPLICATED, ADDED_UP, *COMPRESSED, BUCKETS, Run("replicated", 4, 7, SOME[::3]), SHARDED)
LONG_RUNS = tuple(
    Run(kind, world, rows, ALL, "", MORE, rows - 1)
    for kind in ("replicated", "sharded")
    for world, rows in ((1, 5), (2, 6), (4, 10))
)
"""Runs of the long set."""
TRAINED: Mapping[str, Case] = {**CASES, **ALONE, **ADDING, **SENT, **EXAMPLES}


def by_run(runs: Sequence[Run]) -> pytest.MarkDecorator:
    """Return the parameter `run`; those that are rare are for the long set."""
    marked = [(run, [pytest.mark.long] if run in RARE else []) for run in runs]
    return pytest.mark.parametrize("run", [pytest.param(run, id=run.title, marks=marks) for run, marks in marked])


def write_text(case: Case, kind: str = "none", options: str = "") -> str:
    """Return the document of a case, for processes that share it in some way."""
    parallel = f"parallel: {{{', '.join(filter(None, (f'kind: {kind}', f'buffers: {case.buffers}', options)))}}}"
    text = case.text if kind != "none" else case.text.replace(SYNC, "batch_norm")  # one process has none to agree with
    return "\n".join(("graphspec: 1", "name: case", case.head, parallel, text))


def read_spec(case: Case, kind: str = "none", options: str = "") -> GraphSpec:
    """Return the spec of a case, for processes that share it in some way."""
    if not case.example:
        return load(write_text(case, kind, options))
    path = FOLDER / case.example
    if str(path.parent) not in sys.path:  # where its classes are
        sys.path.append(str(path.parent))
    return load(path, [f"parallel={{{', '.join(filter(None, (f'kind: {kind}', options)))}}}"])


def make_step(case: Case, kind: str = "none", options: str = "") -> Step:
    """Return the step of a case on the CPU, in float64, as one of such processes."""
    return build_step(case, compile_step(read_spec(case, kind, options)))


def build_step(case: Case, plan: Plan) -> Step:
    """Return the step of a plan on the CPU, in float64."""
    return build(plan, device="cpu", dtype="float64", allow=case.allow)


def found(folder: Path, name: str, run: Run = REPLICATED) -> list[dict[str, np.ndarray]]:
    """Return what each process found in a case."""
    return [dict(np.load(run.path(folder, name, rank))) for rank in range(run.world)]


def draw(case: Case, step: Step, rows: int, number: int) -> dict[str, np.ndarray]:
    """Return the whole batch of a step."""
    noise = np.random.default_rng(number)
    batch: dict[str, np.ndarray] = {}
    for name, declared in step.plan.spec.inputs.items():
        shape = [size if isinstance(size, int) else rows for size in declared.shape or ()]
        is_label = declared.dtype == "int64"
        batch[name] = np.asarray(noise.integers(0, case.labels, size=shape) if is_label else noise.normal(size=shape))
        if number == case.overflow and not is_label:
            batch[name][(-1, -1) if case.corner else -1] = np.inf
    return batch


def train(
    case: Case,
    step: Step,
    rows: int,
    rank: int = 0,
    world: int = 1,
    *,
    steps: int = STEPS,
    last: int = 0,
    is_told: bool = False,
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what some steps return, and leave behind, on the rows of one process; of an open window its sum.

    ``last``: the rows of the last batch, where the case does not say it. ``is_told``: the step is told of all rows.
    """

    def own(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rows of this process: uneven, the larger parts first."""
        return {name: np.array_split(value, world)[rank] if value.ndim else value for name, value in batch.items()}

    last = case.last or last
    for number in range(steps):
        count = last if last and number == steps - 1 else rows
        outputs = step(own(draw(case, step, count, number)), rows=count if is_told else None)
        yield from ((f"{name} {number}", np.asarray(value)) for name, value in outputs.items())
    if case.eval:
        outputs = step(own(draw(case, step, rows, steps)), mode="eval", rows=rows if is_told else None)
        yield from ((f"{name} evaluated", np.asarray(value)) for name, value in outputs.items())
    yield from ((name, value) for name, value in step.state().arrays.items() if ".parts." not in name)

"""How a step runs: what it waits for, its types, its state on another device, its memory, the same numbers twice."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from benchmarks.run import EXPERT, VARIANTS, WORKLOADS, cycle
from benchmarks.workloads import Workload
from compiler import compile_step
from graphspec import load
from runtime import Step, build
from runtime.backends.torch.meter import TorchMeter
from tests.conformance import narrow
from tests.conformance.distance import numbers
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import examples, specs
from tests.conformance.training import built, schedule
from tests.features.waiting import counted
from tests.gpu.case import Case, deterministic, near, require
from tests.gpu.compared import CLOSE
from tests.properties.agreement import find_error

SCALED = """
graphspec: 1
name: scaled
seed: 3
rng: native
precision: {compute: COMPUTE, loss_scale: {initial: 1024, growth_steps: 3}}
inputs: {image: {shape: [batch, 16]}}
models:
  generator: {layers: [{linear: 32}, relu, {dropout: 0.1}, {linear: 16}], optimizer: {name: adam, lr: 1.0e-3}}
  critic: {layers: [{linear: 32}, relu, {linear: 1}], optimizer: {name: adam, lr: 1.0e-3}}
  average: {like: generator}
outputs: [loss_d, loss_g]
ops:
  z: {random: normal, shape: [batch, 8]}
  fake: {forward: generator, inputs: z}
  real: {forward: critic, inputs: image}
  faked: {forward: critic, inputs: fake}
  loss_d: {expr: "bce_with_logits(real, 1.0) + bce_with_logits(faked, 0.0)"}
  step_d: {update: critic, loss: loss_d}
  judged: {forward: critic, inputs: fake, after: step_d}
  loss_g: {loss: bce_with_logits, inputs: [judged, 1.0]}
  step_g: {update: generator, loss: loss_g}
  follow: {ema: generator, into: average, decay: 0.9}
"""
"""A GAN with a loss scale: its first update is applied before the host knows whether it stays."""
FIRST, BURST, STEPS = 3, 5, 12
"""The steps that warm up, the one whose batch overflows, and all that are taken."""
MOST_MEMORY = 1.02
"""Times the expert's peak."""
CROSSING = ("optimizers", "averages", "windows", "overflow", "schedules", "states", "metrics", "rows", "nadam", "draws")


def make_scaled(device: str, compute: str = "float16", rng: str = "native") -> Step:
    """Return the step of the GAN with a loss scale."""
    text = SCALED.replace("COMPUTE", compute).replace("native", rng)
    return build(compile_step(load(text)), device=device, dtype="float32")


def draw(number: int, device: str) -> dict[str, torch.Tensor]:
    """Return the batch of a step of it, on the device; one of them overflows."""
    image = torch.randn(32, 16, generator=torch.Generator().manual_seed(number))
    return {"image": (image * (float("inf") if number == BURST else 1.0)).to(device)}


@contextmanager
def waiting(device: str) -> Iterator[list[str]]:
    """Note where the host waits for the device; on a CPU, where it would: reads of tensors into Python."""
    if not device.startswith("cuda"):
        with counted("torch") as seen:
            yield seen
        return
    seen, before = list[str](), torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield seen
        finally:
            torch.cuda.set_sync_debug_mode(before)
            found = (each for each in caught if "synchronizing" in str(each.message))
            seen += [f"{Path(each.filename).name}:{each.lineno}" for each in found]


def waits(device: str) -> Iterator[Case]:
    """Yield steps with a loss scale, which wait once at most, and steps without one, which never do."""
    for compute in ("float16", "float32"):
        yield Case(name=f"with a loss scale, {compute}", run=partial(try_scaled_waits, compute, device))
    for workload in WORKLOADS:
        for variant in ("emitted step", "built step"):
            yield Case(name=f"{workload.name}, {variant}", run=partial(try_waits, workload, variant, device))


def try_scaled_waits(compute: str, device: str) -> tuple[object, ...]:
    """Return how often a step with a loss scale waits; raise Wrong for more than once, an overflow included."""
    step, most = make_scaled(device, compute), 0
    for number in range(1, STEPS):
        batch = draw(number, device)
        with waiting(device) as seen:
            step(batch)
        if number >= FIRST:
            most = max(most, len(seen))
            require(len(seen) <= 1, f"step {number} waits at {', '.join(seen)}")
    return (most,)


def try_waits(workload: type[Workload], variant: str, device: str) -> tuple[object, ...]:
    """Return that a step does not wait for the device, its batch there already; raise Wrong where it does."""
    made = workload().to(device)
    step = VARIANTS[variant](made)
    for number, batch in enumerate(made.batches(FIRST + 2 * made.period), 1):
        with waiting(device) as seen:
            step(batch)
        require(number < FIRST or not seen, f"step {number} waits at {', '.join(seen)}")
    return (0,)


def scales(device: str) -> Iterator[Case]:
    """Yield steps in low precision, and steps whose gradients overflow."""
    for compute in narrow.EPSILON:
        yield Case(name=f"{compute} is near float32", run=partial(try_narrow, compute, device))
    for compute in ("float32", "float16"):
        yield Case(name=f"a skipped step in {compute}", run=partial(try_skipped, compute, device))


def try_narrow(compute: str, device: str) -> tuple[object, ...]:
    """Return how far five steps in low precision are from the CPU's in float32, in units of the type's resolution."""
    exact, _ = narrow.train("torch", "float32")
    found, _ = narrow.train("torch", f"{{compute: {compute}, loss_scale: none}}", device)
    error = np.abs(found - exact).max() / np.abs(exact).max() / narrow.EPSILON[compute]
    near(error, 8, "the result, in units of the resolution,")
    require(error > 1 / 64, f"off by {error:.1e} of the resolution: it was not computed in {compute}")
    return (f"{error:.2f}",)


def try_skipped(compute: str, device: str) -> tuple[object, ...]:
    """Return the scales of all steps; raise Wrong where a skipped step leaves something changed, or scales differ."""
    ours, theirs = make_scaled(device, compute, "portable"), make_scaled("cpu", compute, "portable")
    found: list[tuple[float | None, float | None]] = []
    for number in range(1, STEPS):
        before = ours.state()
        for step, place in ((ours, device), (theirs, "cpu")):
            step(draw(number, place))
        after = ours.state()
        found.append((ours.report.scale_after, theirs.report.scale_after))
        critic = [name for name in after.arrays if ".critic." in name]
        moved = [name for name in critic if after.arrays[name].tobytes() != before.arrays[name].tobytes()]
        require(number != BURST or not moved, f"the skipped update has changed {moved[:3]}")
        require(
            number == BURST or len(moved) == len(critic), f"step {number} has left {len(critic) - len(moved)} alone"
        )
        require(ours.report.held == theirs.report.held, f"step {number} holds {ours.report.held}")
    require(all(one == other for one, other in found), f"scales on {device} and on the CPU: {found}")
    if compute == "float32":
        pairs = zip(numbers(ours.state()), numbers(theirs.state()), strict=True)
        near(max(find_error(one, other, loose=False) for (_, one), (_, other) in pairs), 1e-4, "the state")
    return (" ".join(f"{one:g}" for one, _ in found if one is not None),)


def checkpoints(device: str) -> Iterator[Case]:
    """Yield steps that go on elsewhere from a checkpoint: of the CPU on the device, and the other way round."""
    chosen = (each for each in (*specs(), *examples()) if each.name in CROSSING or "examples" in str(each.source))
    for scenario in sorted(chosen, key=lambda each: each.name not in CROSSING):
        yield Case(name=f"{scenario.name}, there", run=partial(try_crossing, scenario, "cpu", device))
        yield Case(name=f"{scenario.name}, and back", run=partial(try_crossing, scenario, device, "cpu"))


def try_crossing(scenario: Scenario, begin: str, end: str) -> None:
    """Raise Wrong where four steps that change over to another device after two differ from four on the CPU."""
    whole, first, second = (built(scenario, "torch", device=each) for each in ("cpu", begin, end))
    with tempfile.TemporaryDirectory() as folder:
        for number, (mode, batch, dataset) in enumerate(itertools.islice(schedule(whole, scenario), 4)):
            if number == 2:
                first.save(Path(folder, "state"))
                second.load(Path(folder, "state"))
            for step in (whole, first if number < 2 else second):
                step(batch, mode, dataset=dataset)
    ours, theirs = dict(numbers(second.state())), dict(numbers(whole.state()))
    require(ours.keys() == theirs.keys(), "the states have other names")
    for name, value in theirs.items():
        if value.dtype.kind in "biu":
            require(np.array_equal(ours[name], value), f"{name} is another")
        else:
            near(find_error(ours[name], value, loose=False), CLOSE if value.dtype == np.float64 else 1e-6, name)


def memory(device: str) -> Iterator[Case]:
    """Yield the steps of the benchmarks: the most memory that one takes, where a device tells."""
    if TorchMeter(device, None).peak(lambda: None) is not None:
        for workload in WORKLOADS:
            yield Case(name=workload.name, run=partial(try_memory, workload, device))


def try_memory(workload: type[Workload], device: str) -> tuple[object, ...]:
    """Return the peaks of the expert's step and of ours; raise Wrong where ours is higher."""
    meter, found = TorchMeter(device, None), dict[str, int]()
    for variant in (EXPERT, "emitted step", "built step"):
        made = workload().to(device)
        take = cycle(VARIANTS[variant](made), made.batches(4))
        for _ in range(FIRST + made.period):
            take()
        found[variant] = max(meter.peak(take) or 0 for _ in range(2 * made.period))
    ratios = [found[each] / found[EXPERT] for each in ("emitted step", "built step")]
    near(max(ratios), MOST_MEMORY, "the peak, as a multiple of the expert's,")
    return (f"{found[EXPERT] / 1e6:.2f}", *(f"{each:.3f}" for each in ratios))


def repeats(device: str) -> Iterator[Case]:
    """Yield steps that are taken twice from the same seed, with the device's own random numbers."""
    yield Case(name="a GAN with dropout and a loss scale", run=partial(try_repeated, device))
    for workload in WORKLOADS:
        yield Case(name=workload.name, run=partial(try_workload_twice, workload, device))


def try_repeated(device: str) -> None:
    """Raise Wrong where two runs differ in a bit, one of them resumed in the middle."""
    one, other = make_scaled(device), make_scaled(device)
    with deterministic():
        for number in range(1, STEPS):
            if number == STEPS // 2:
                state, other = other.state(), make_scaled(device)
                other.restore(state)
            one(draw(number, device))
            other(draw(number, device))
    compare_bits([dict(numbers(each.state())) for each in (one, other)])


def try_workload_twice(workload: type[Workload], device: str) -> None:
    """Raise Wrong where five steps give other bits the second time."""
    found: list[dict[str, np.ndarray]] = []
    for _ in range(2):
        made = workload().to(device)
        step = VARIANTS["emitted step"](made)
        with deterministic():
            for batch in made.batches(5):
                step(batch)
        states = ((name, net.state_dict()) for name, net in made.nets.items())
        found.append({f"{name}.{key}": each.cpu().numpy() for name, state in states for key, each in state.items()})
    compare_bits(found)


def compare_bits(found: list[dict[str, np.ndarray]]) -> None:
    """Raise Wrong where two runs differ in a bit."""
    for one, other in pairwise(found):
        changed = [name for name, value in one.items() if value.tobytes() != other[name].tobytes()]
        require(not changed, f"other bits the second time: {changed[:3]}")

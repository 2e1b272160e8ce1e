"""Time our TensorFlow step against hand-written ones: ``python -m benchmarks.tensorflow_run [--rounds 60] [--xla]``."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from types import ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks.figures import TIMINGS, Row, add_json, compared, report, show_timing
from benchmarks.tensorflow_steps import WORKLOADS, Batch, State, Step, Workload
from compiler import compile_step
from graphspec import load
from runtime import build, emit
from runtime.bench.emitted import load_emitted as read_emitted
from runtime.bench.interleaving import Timing, interleave

EXPERT = "expert"
Kind = type[Workload]


def load_emitted(workload: Kind) -> ModuleType:
    """Return the file that is emitted for a workload's spec as a module."""
    return read_emitted(emit(compile_step(load(workload.spec), "tensorflow")))


def find_states(workload: Kind) -> Mapping[str, State]:
    """Return the initial weights of a workload's nets."""
    module = load_emitted(workload)
    module.build()
    return {
        name: {key: value.numpy() for key, value in {**model.named_parameters(), **model.named_buffers()}.items()}
        for name, model in module.MODELS.items()
    }


def make_emitted(workload: Kind, *, xla: bool) -> Step:
    """Return the step of the emitted file."""
    module = load_emitted(workload)
    module.build(jit_compile=xla)
    return module.step


def make_built(workload: Kind, *, xla: bool) -> Step:
    """Return the step that ``build`` gives, which looks at every batch before it lets it in."""
    return build(compile_step(load(workload.spec), "tensorflow"), device="cpu", jit_compile=xla)


def make_graph(function: Callable[..., Mapping[str, Any]], sample: Batch, *, xla: bool) -> Step:
    """Return a hand-written step as one graph, its batch size open; it is called without looking among traces first."""
    traced = make_function(function, sample, xla=xla).get_concrete_function()
    return lambda batch: traced(**batch)


def make_function(function: Callable[..., Mapping[str, Any]], sample: Batch, *, xla: bool) -> Any:
    """Return a hand-written step as a ``tf.function``, its batch size open."""
    names = [name for name in signature(function).parameters if name in sample]
    specs = [tf.TensorSpec((None, *sample[name].shape[1:]), sample[name].dtype, name=name) for name in names]
    return tf.function(function, specs, jit_compile=xla or None, autograph=False)


def make_called(function: Callable[..., Mapping[str, Any]], sample: Batch, *, xla: bool) -> Step:
    """Return a hand-written step as loops call it."""
    traced = make_function(function, sample, xla=xla)
    return lambda batch: traced(**batch)


def make_variants(workload: Kind, *, xla: bool) -> dict[str, Step]:
    """Return every variant of a step."""
    states, sample = find_states(workload), workload.batches(1)[0]
    return {
        "Keras": make_graph(workload(states).idiom(), sample, xla=xla),
        "tf.function": make_called(workload(states).expert(), sample, xla=xla),
        EXPERT: make_graph(workload(states).expert(), sample, xla=xla),
        "emitted step": make_emitted(workload, xla=xla),
        "built step": make_built(workload, xla=xla),
    }


def cycle(step: Step, batches: list[Batch]) -> Callable[[], object]:
    """Return a step that takes the batches in turn, and waits for its numbers."""
    feed = itertools.cycle(batches)
    return lambda: [value.numpy() for value in step(next(feed)).values()]


def measure(workload: Kind, rounds: int, *, xla: bool) -> dict[str, Timing]:
    """Time all variants of a workload in one interleaved run."""
    batches = workload.batches(16)
    made = make_variants(workload, xla=xla)
    return interleave({name: cycle(step, batches) for name, step in made.items()}, EXPERT, rounds=rounds)


def find_rows(rounds: int, only: str | None, *, xla: bool) -> Iterator[Row]:
    """Yield a row for each variant of each step."""
    for workload in WORKLOADS:
        if only in (None, workload.name):
            for name, timing in measure(workload, rounds, xla=xla).items():
                yield {"step": workload.name, "variant": name, **compared(timing)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", choices=[workload.name for workload in WORKLOADS])
    parser.add_argument("--xla", action="store_true")
    add_json(parser)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(TIMINGS)
    report(find_rows(options.rounds, options.only, xla=options.xla), show_timing, options.json, options.rounds)


if __name__ == "__main__":
    main()

"""All checks of a device, the most telling first."""

from __future__ import annotations

from tests.gpu import compared, orders, running, timing
from tests.gpu.case import Check

CHECKS: tuple[Check, ...] = (
    Check(
        name="deferral",
        asks="Does autograd stop a step whose update does not wait, with fused kernels and without, and leave the "
        "compiled order alone?",
        against="its version counters",
        cases=orders.deferrals,
        share=3,
    ),
    Check(
        name="steps",
        asks="Do emitted and built steps give the numbers of an expert's loop?",
        against="the loops of the benchmarks, on the device",
        cases=compared.steps,
        share=3,
        columns=("farthest",),
    ),
    Check(
        name="loops",
        asks="Do ten steps of published programs give the numbers of loops by hand?",
        against="these loops, on the CPU",
        cases=compared.loops,
        share=3,
    ),
    Check(
        name="waits",
        asks="Does a step with a loss scale wait for the device once at most, and one without never?",
        against="`torch.cuda.set_sync_debug_mode`",
        cases=running.waits,
        share=2,
        columns=("waits",),
    ),
    Check(
        name="precision",
        asks="Are float16 and bfloat16 as near to float32 as their resolution? Does a skipped update leave all bits "
        "alone, and does the loss scale follow?",
        against="float32 on the CPU; the scales of the CPU",
        cases=running.scales,
        share=1,
        columns=("found",),
    ),
    Check(
        name="versions",
        asks="Does every weight that a step moves have a new version?",
        against="the weights before the step",
        cases=orders.versions,
        share=2,
        columns=("moved",),
    ),
    Check(
        name="checkpoints",
        asks="Does a step go on from a checkpoint of the CPU, and the CPU from one of its own?",
        against="the undisturbed step on the CPU",
        cases=running.checkpoints,
        share=2,
    ),
    Check(
        name="memory",
        asks=f"Does a step take no more than {running.MOST_MEMORY} times the memory of an expert's?",
        against="`torch.cuda.max_memory_allocated` of both",
        cases=running.memory,
        share=1,
        columns=("expert MB", "emitted step", "built step"),
    ),
    Check(
        name="bench",
        asks="How long do the steps take?",
        against="the expert's, in one interleaved run",
        cases=timing.bench,
        share=4,
        columns=("expert ms", "idiom", "emitted step", "built step"),
    ),
    Check(
        name="conformance",
        asks="Do all specs of the conformance suite give the same numbers?",
        against="float64 on the CPU",
        cases=compared.scenarios,
        share=8,
    ),
    Check(
        name="oracle",
        asks="Do random specs give what the oracle says?",
        against="the oracle",
        cases=compared.oracle,
        share=6,
    ),
    Check(
        name="necessity",
        asks="Is every deferral of random specs needed?",
        against="the same step with it undone",
        cases=orders.necessity,
        share=3,
        columns=("undone", "stopped by autograd", "other numbers"),
    ),
    Check(
        name="repeats",
        asks="Does a step give the same bits twice, and when it is resumed?",
        against="the first run",
        cases=running.repeats,
        share=1,
    ),
    Check(
        name="captured",
        asks="Do captured examples, and one with overflows, give the numbers of their eager steps as CUDA graphs?",
        against="the eager step, in float64",
        cases=timing.captured,
        share=5,
        columns=("graphs", "recorded", "outputs", "state", "compiled in s", "functions"),
    ),
    Check(
        name="captured bench",
        asks="How long do captured steps take?",
        against="the emitted file and the idiom, in one interleaved run",
        cases=timing.bench_captured,
        share=5,
        columns=("captured ms", "of the emitted step", "of the idiom"),
    ),
)

"""The report of a comparison: a table for a terminal, and JSON."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Sequence

from runtime.bench.comparison import COMPARED, Comparison
from runtime.bench.variants import BUILT
from runtime.terminal import counted


def format_table(found: Comparison) -> str:
    """Return the report as text: what was timed and where, a line for each variant, and notes."""
    lines, table = [*_head(found), ""], list(_rows(found))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:  # numbers to the right, the first and the last cell to the left
        inner = (f"{cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
        lines.append("  ".join((f"{row[0]:{widths[0]}}", *inner, row[-1])).rstrip())
    return "\n".join([*lines, *_notes(found)])


def to_json(found: Comparison) -> dict[str, object]:
    """Return the report as JSON has it: seconds and bytes; what is not known or not finite is null."""
    machine, request = found.machine, found.request
    return {
        "spec": request.spec.name,
        "backend": request.backend,
        "machine": {
            "framework": machine.framework,
            "device": machine.device,
            "device_name": machine.title or None,
            "threads": machine.threads or None,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "seed": request.chosen_seed,
        "rounds": found.rounds,
        "slice_ms": request.slice_ms,
        "batches": {
            "count": len(found.sample.batches),
            "source": "data.train" if found.sample.is_read else "made up",
            "shapes": {name: list(shape) for name, shape in found.sample.shapes.items()},
        },
        "baseline": found.baseline,
        "variants": {name: _describe(found, name) for name in found.variants},
        "left_out": dict(found.left_out),
        "interrupted": bool(found.interrupted),
    }


def _describe(found: Comparison, name: str) -> dict[str, object]:
    """Return what was found of one variant."""
    variant, timing, agreement = found.variants[name], found.timings.get(name), found.agreements.get(name)
    figures = None
    if timing is not None:
        figures = {
            "ms": timing.milliseconds,
            "ratio": timing.ratio,
            "low": timing.low,
            "high": timing.high,
            "cpu_ratio": _finite(timing.cpu_ratio),
            "steps_per_second": 1e3 / timing.milliseconds,
        }
    compared = None
    if agreement is not None and agreement.difference is not None:
        compared = {
            "agrees": agreement.agrees,
            "difference": _finite(agreement.difference),
            "output": agreement.output,
            "step": agreement.step,
        }
    return {
        "timing": figures,
        "build_seconds": variant.build_seconds,
        "first_steps": variant.steps,
        "first_steps_seconds": variant.first_seconds,
        "peak_bytes": variant.peak,
        "against_step": compared,
        "notes": list(variant.notes),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _head(found: Comparison) -> Iterator[str]:
    """Yield the lines on what was timed, and where."""
    machine, request, batches = found.machine, found.request, found.sample.batches
    threads = counted(machine.threads, "thread") if machine.threads else "default threads"
    device = f"{machine.device} ({machine.title})" if machine.title else machine.device
    cores = counted(os.cpu_count() or 1, "core")
    yield f"{request.spec.name}: one train step, {machine.framework} on {device}"
    yield f"  {threads} of {cores}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in found.sample.shapes.items())
    source = "of data.train" if found.sample.is_read else "made up, as the spec has no data"
    kinds = "batch" if len(batches) == 1 else "batches"
    yield f"  {len(batches)} {kinds} {source}: {shapes}"
    wanted = f" of {request.rounds}" if found.rounds < request.rounds else ""
    pattern = f", in multiples of {found.multiple} steps" if found.multiple > 1 else ""
    yield f"  {found.rounds}{wanted} rounds in random order, {request.slice_ms:g} ms for each variant{pattern}"


def _rows(found: Comparison) -> Iterator[Sequence[str]]:
    """Yield the cells of the table, the header first; a column that no variant has is left out."""
    has_peak = any(each.peak is not None for each in found.variants.values())
    peak = ["peak MB"] if has_peak else []
    yield "", "ms", f"of {found.baseline}", "p10 - p90", "steps/s", *peak, "build s", "first s", "outputs"
    for name, variant in found.variants.items():
        timing, agreement = found.timings.get(name), found.agreements.get(name)
        figures = ["-", "-", "-", "-"]
        if timing is not None:
            spread = "" if name == found.baseline else f"{timing.low:.2f} - {timing.high:.2f}"
            figures = [f"{timing.milliseconds:.3f}", f"{timing.ratio:.3f}", spread, f"{1e3 / timing.milliseconds:,.0f}"]
        memory = [] if not has_peak else ["-" if variant.peak is None else f"{variant.peak / 1e6:,.1f}"]
        seconds = f"{variant.build_seconds:.3f}", f"{variant.first_seconds:.3f}"
        yield name, *figures, *memory, *seconds, f"as {BUILT}" if agreement is None else str(agreement)


def _notes(found: Comparison) -> Iterator[str]:
    """Yield an empty line and the notes, where there are any."""
    notes: list[str] = []
    for name, each in found.agreements.items():
        if each.difference is None:
            notes.append(f"{name}: not compared, it returns no output of {BUILT} by its name")
        elif not each.agrees:
            size = "in shape, or in a value that is not finite" if math.isinf(each.difference) else str(each)
            notes.append(
                f"{name}: {each.output} differs from that of {BUILT} {size.removeprefix('differs ')} in step "
                f"{each.step}; the first {COMPARED} were compared"
            )
    notes += [f"{name}: {note}" for name, each in found.variants.items() for note in each.notes]
    notes += [f"{name} is left out: {reason}" for name, reason in found.left_out.items()]
    if notes:
        yield ""
        yield from notes

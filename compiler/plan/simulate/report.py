"""A simulation as text, with one sentence that says where the step stops scaling, and as JSON."""

from __future__ import annotations

from compiler.ir.value import Json, Object
from compiler.plan.messages import format_size
from compiler.plan.simulate.cluster import Cluster
from compiler.plan.simulate.simulation import LEAST_EFFICIENCY, LEAST_GAIN, Estimate, Simulation
from compiler.plan.simulate.timeline import BUFFERS, COUNTS, GATHERED
from graphspec.declare.options import BATCH
from graphspec.diagnostics import escape
from graphspec.words import enumerate_words

UNLISTED = {COUNTS: "the numbers of rows", BUFFERS: "the buffers", GATHERED: "the weights that are gathered"}
"""What has no name in a plan."""
HEAD = ("ranks", "rows each", "compute", "sent", "waits", "step", "speedup", "efficiency", "memory")


def print_simulation(simulation: Simulation) -> str:
    """Return a simulation as text: a table with a line for each number of processes, and what limits it."""
    cluster = simulation.cluster
    kind = "sharded" if simulation.is_sharded else "replicated"
    scaling = f"{simulation.batch} rows in all" if cluster.scaling == "strong" else f"{simulation.batch} rows each"
    rows = [HEAD, *(_format_row(each, cluster) for each in simulation.estimates)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    given = [f"{_scale(cluster.bandwidth)}B/s", f"{_shorten(cluster.latency)} a hop"]
    given += [f"{_scale(cluster.flops)}FLOP/s"] if cluster.flops is not None else []
    given += [f"{_shorten(cluster.step)} a step of one process"] if cluster.step is not None else []
    given += [f"{_shorten(cluster.overhead)} of it for any rows"] if cluster.overhead else []
    given += [f"{cluster.cores} cores for all"] if cluster.cores is not None else []
    given += [f"collectives by {cluster.collectives}"] if cluster.collectives != "auto" else []
    cells = ([f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)] for row in rows)
    lines = [
        f"{simulation.name}: {simulation.mode} step of several processes, {kind}, {cluster.scaling} scaling",
        f"{scaling}; {', '.join(given)}",
        "",
        *("  " + "  ".join(row).rstrip() for row in cells),
        "",
        describe_limit(simulation),
    ]
    most = cluster.memory
    over = [] if most is None else [f"{each.ranks}" for each in simulation.estimates if each.memory.total > most]
    if most is not None and over:
        numbers = enumerate_words(over, conjunction="and")
        lines.append(f"With {numbers} processes it does not fit {format_size(round(most))} of memory.")
    if len(simulation.shares) > 1:
        shares = (f"{name} in {100 * share:.3g} % of the steps" for name, share in simulation.shares.items())
        lines.append(f"A step is the mean of {enumerate_words([*shares], conjunction='and')}.")
    if simulation.left_out:
        numbers = enumerate_words([f"{each}" for each in simulation.left_out], conjunction="and")
        lines.append(f"The batch has too few rows for {numbers} processes.")
    notes = [f"  {each}" for each in simulation.notes]
    return "\n".join(map(escape, [*lines, *(["", "notes", *notes] if notes else [])])) + "\n"


def describe_limit(simulation: Simulation) -> str:
    """Return where a step stops scaling, and why, in a sentence or two."""
    limit, is_weak = simulation.limit, simulation.cluster.scaling == "weak"
    most = simulation.cluster.ranks[-1]
    if limit is None:
        if is_weak:
            return f"Up to {most} processes the efficiency stays above {LEAST_EFFICIENCY:g}."
        return f"Up to {most} processes, twice as many make a step at least {LEAST_GAIN:g} times faster."
    if limit.more is None:
        rows = "1 row" if limit.at.rows == 1 else f"{limit.at.rows} rows"
        return f"It scales to {limit.ranks} processes with {rows} each: there are too few rows for twice as many."
    more = limit.more
    if is_weak:
        begin = f"From {more.ranks} processes on the efficiency is below {LEAST_EFFICIENCY:g}"
    else:
        gain = limit.at.step / more.step
        faster = f"only {gain:.2f} times faster" if gain > 1 else "no faster"
        at = "1 process" if limit.ranks == 1 else f"{limit.ranks} processes"
        begin = f"It stops scaling at {at}: with {more.ranks} a step is {faster}"
    name, step = UNLISTED.get(limit.message, f"`{limit.message}`"), format_time(more.step)
    match limit.reason:
        case "latency":
            hops = format_time(sum(each.latency for each in more.waits.values()))
            why = f"Latency costs most: of its {step}, {hops} are hops of messages, above all of {name}"
        case "bandwidth":
            sending = format_time(sum(each.transfer for each in more.waits.values()))
            why = f"Bandwidth costs most: of its {step}, {sending} are bytes of messages, above all of {name}"
        case "fixed":
            why = f"What does not get smaller with the rows costs most: {format_time(more.fixed)} of its {step}"
        case "cores":
            why = "The processes share cores"
        case _:
            why = "Work on rows that is not divided costs most, as what every process draws for all rows"
    return f"{begin}. {why}."


def _scale(value: float) -> str:
    """Return a number with the prefix of its unit."""
    prefixes = ("", "k", "M", "G", "T", "P")
    power = next((at for at in range(len(prefixes)) if value < 1000 ** (at + 1)), len(prefixes) - 1)
    return f"{value / 1000**power:.4g} {prefixes[power]}"


def _format_row(each: Estimate, cluster: Cluster) -> tuple[str, ...]:
    """Return a line of the table; memory that does not fit is marked."""
    is_over = cluster.memory is not None and each.memory.total > cluster.memory
    return (
        f"{each.ranks}",
        f"{each.rows}",
        format_time(each.compute),
        format_size(round(each.sent)),
        format_time(each.waited),
        format_time(each.step),
        _format_number(each.speedup),
        f"{_format_number(100 * each.efficiency)} %",
        format_size(each.memory.total) + (" !" if is_over else ""),
    )


def _format_number(value: float) -> str:
    """Return a number with two digits at least: `0.85`, `8.5`, `850`."""
    return f"{value:.{2 if value < 1 else 1 if value < 99.95 else 0}f}"


def _shorten(seconds: float) -> str:
    """Return a time as it was given: `5 us`."""
    scale, unit = _choose_unit(seconds)
    return f"{seconds / scale:g} {unit}"


def format_time(seconds: float) -> str:
    """Return a time with a unit and three digits: `1.24 ms`."""
    scale, unit = _choose_unit(seconds)
    value = seconds / scale
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}" if seconds else "0 s"


def _choose_unit(seconds: float) -> tuple[float, str]:
    """Return the seconds of the largest unit that a time reaches, and its name."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    return next((each for each in units if seconds >= each[0]), (1e-9, "ns"))


def export_simulation(simulation: Simulation) -> Object:
    """Return a simulation as an object: times in seconds, sizes in bytes, rates for each second."""
    cluster, limit = simulation.cluster, simulation.limit
    found: Json = None
    if limit is not None:
        message = limit.message or None
        gain = None if limit.more is None else limit.at.step / limit.more.step
        found = {"ranks": limit.ranks, "reason": limit.reason, "message": message, "gain": gain}
    given: Object = {
        "bandwidth": cluster.bandwidth,
        "latency": cluster.latency,
        "flops": cluster.flops,
        "step": cluster.step,
        "overhead": cluster.overhead,
        "memory": cluster.memory,
        "cores": cluster.cores,
        "scaling": cluster.scaling,
        "collectives": cluster.collectives,
        "sizes": {**cluster.sizes, BATCH: simulation.batch},
        "parameters": {**cluster.parameters},
        "costs": {**cluster.costs},
    }
    return {
        "simulation": 1,
        "name": simulation.name,
        "mode": simulation.mode,
        "kind": "sharded" if simulation.is_sharded else "replicated",
        "cluster": given,
        "one": _export(simulation.one),
        "ranks": [_export(each) for each in simulation.estimates],
        "left_out": [*simulation.left_out],
        "limit": found,
        "sentence": describe_limit(simulation),
        "functions": {**simulation.shares},
        "notes": [*simulation.notes],
    }


def _export(each: Estimate) -> Object:
    """Return an estimate as an object."""
    memory = each.memory
    waits: Object = {name: {"latency": found.latency, "transfer": found.transfer} for name, found in each.waits.items()}
    return {
        "ranks": each.ranks,
        "rows": each.rows,
        "compute": each.compute,
        "fixed": each.fixed,
        "sent": each.sent,
        "waits": waits,
        "step": each.step,
        "speedup": each.speedup,
        "efficiency": each.efficiency,
        "memory": {
            "weights": memory.weights,
            "slots": memory.slots,
            "gradients": memory.gradients,
            "messages": memory.messages,
            "values": memory.values,
            "total": memory.total,
        },
    }

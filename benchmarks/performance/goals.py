"""The table of goals: what is wanted, what an older tree reached, and what this one reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.figures import find_mean
from benchmarks.performance.cells import Rows, extent, find, head, line, number, thousands

SLOWER = ("cyclegan", "accumulated-mlp")
"""The steps with a goal of their own."""
PAPERS = ("dann", "infogan", "mixmatch")
SHAPES = ("chain of calls", "independent models", "coupled models")
FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
TREES = ("before", "now")
GOALS: Mapping[str, str] = {
    **dict.fromkeys(SLOWER, "1"),
    "reading": "20",
    "compiling": "40, 40, 60",
    "--help": "0.12",
    "check": "0.15",
    "plan": "0.20",
    "build": "0.40",
    "run": "1.03",
}
"""The goals of the lines that also have a floor; compiling has one for each shape."""
SAME = "the same"


def write_goals(figures: Mapping[str, Rows]) -> Iterator[str]:
    """Yield the goals in the order of the page."""
    yield head("what", "goal", *TREES, "measured by")
    yield from _tell_steps(figures["steps"])
    yield from _tell_compiling(figures["compile-1000"], figures["compile-10000"], figures["compile-coupled"])
    yield _tell_growth(figures["compile-growth"])
    yield from _tell_commands(figures["starts"], figures["loop"])
    yield _tell_memory(figures["memory"])
    yield from _tell_captured(figures["captured"], figures["captured-examples"])
    yield _tell_peers(figures["peers"])
    yield _tell_processes(figures["processes"])


def _tell_steps(rows: Rows) -> Iterator[str]:
    """Yield the goals of emitted steps."""

    def ratio(step: str, variant: str) -> str:
        """Return what a variant takes, of the expert's time."""
        return number(find(rows, step=step, variant=variant)["of expert"][0])

    others, cyclegan, accumulated, papers = list[str](), list[str](), list[str](), list[str]()
    for variant in ("emitted step before", "emitted step"):
        ratios = [r["of expert"][0] for r in rows if r["variant"] == variant and r["step"] not in SLOWER]
        others.append(extent(ratios))
        cyclegan.append(ratio("cyclegan", variant))
        accumulated.append(ratio("accumulated-mlp", variant))
        papers.append(", ".join(ratio(step, variant) for step in PAPERS))
    built = ratio("accumulated-mlp", "built step")
    what = "emitted step, of the expert's: [nine of eleven steps](#figures)"
    yield line(what, "at most 1", *others, "`python -m benchmarks.run --before BEFORE`")
    yield line("`cyclegan`", GOALS["cyclegan"], *cyclegan, SAME)
    what = "`accumulated-mlp`, emitted and built step"
    yield line(what, GOALS["accumulated-mlp"], accumulated[0], f"{accumulated[1]}, {built}", SAME)
    yield line("three of these from papers, written before their code was emitted", "at most 1", *papers, SAME)


def _tell_compiling(thousand: Rows, ten_thousand: Rows, coupled: Rows) -> Iterator[str]:
    """Yield the goals of reading and compiling specs."""

    def each(rows: Rows, name: str) -> list[str]:
        """Return a figure of the three shapes, in both trees."""
        return [", ".join(thousands(find(rows, shape=shape)[tree][name]) for shape in SHAPES) for tree in TREES]

    what = "reading 1,000 ops, microseconds for each: a chain, independent, coupled models"
    yield line(
        what, GOALS["reading"], *each(thousand, "load"), "`python -m benchmarks.compile_time BEFORE . --ops 1000`"
    )
    yield line("[compiling](#compile-time) them", GOALS["compiling"], *each(thousand, "compile"), SAME)
    yield line("10,000 ops: reading", GOALS["reading"], *each(ten_thousand, "load"), "`--ops 10000 --rounds 1`")
    yield line("10,000 ops: compiling", GOALS["compiling"], *each(ten_thousand, "compile"), SAME)
    seconds = [number(coupled[0][tree]["seconds"], 1) for tree in TREES]
    by = '`--ops 8415 --rounds 1 --shape "coupled models"`'
    yield line("8,415 coupled ops: reading and compiling, seconds", "1", *seconds, by)
    megabytes = [number(coupled[0][tree]["MB"], 0) for tree in TREES]
    yield line("the same, MB of the process", "300", *megabytes, SAME)


def _tell_growth(rows: Rows) -> str:
    """Return the goal of compiling large specs; the older tree would take hours."""
    now = ", ".join(number(find(rows, shape=shape)["of smaller"]) for shape in SHAPES)
    what = "100,000 ops: reading and compiling, each op, of those of 1,000"
    return line(what, "1.3", "", now, "`python -m benchmarks.compile_time . . --ops 100000 --of 1000`")


def _tell_commands(starts: Rows, loop: Rows) -> Iterator[str]:
    """Yield the goals of short commands, and of the loop of a run."""

    def seconds(*programs: str) -> list[str]:
        """Return the CPU seconds of some programs, in both trees."""
        return [", ".join(number(find(starts, program=each)[tree]) for each in programs) for tree in TREES]

    commands, by = ("--help", "check", "plan"), "`python -m benchmarks.starts BEFORE`"
    goals = ", ".join(GOALS[each] for each in commands)
    yield line("CPU seconds of `--help`, `check`, `plan`", goals, *seconds(*commands), by)
    what = "CPU seconds to read, compile and build a small step on PyTorch in a new process, above importing torch"
    yield line(what, GOALS["build"], *seconds("build, above torch"), SAME)
    mlp, gan = ([find(loop, step=step, tree=tree)["of bare"] for tree in TREES] for step in ("small-mlp", "gan-digits"))
    what = "step of `stepgraph run`, of the bare step, in CPU time: [`small-mlp`](#other-libraries)"
    by = "`python -m benchmarks.loop BEFORE --rounds 5`"
    yield line(what, GOALS["run"], *(number(middle) for middle, *_ in mlp), by)
    spreads = (f"{number(middle)} ({number(low)} - {number(high)})" for middle, low, high in gan)
    yield line("a GAN on digits", GOALS["run"], *spreads, SAME)


def _tell_memory(rows: Rows) -> str:
    """Return the goal of the allocator's peak."""

    def tell(tree: str) -> str:
        """Return the ratios to the loop by hand in training, and in an evaluation where they differ."""
        found: dict[str, list[float]] = {"train": [], "eval": []}
        for row in rows:
            if row["calls"] in ("chain", "fan"):
                found[row["mode"]].append(row[tree] / row["expert"])
        cells = ((number(each, 1 if each >= 10 else 2) for each in ratios) for ratios in found.values())
        return ", ".join(dict.fromkeys(" and ".join(dict.fromkeys(each)) for each in cells))

    what = "allocator's peak, of a loop by hand: twenty calls of 4 MB, train and eval"
    now = f"[{tell('emitted')}](#memory)"
    return line(what, "1.02", tell("before"), now, "`python -m benchmarks.memory BEFORE`")


def _tell_captured(steps: Rows, examples: Rows) -> Iterator[str]:
    """Yield the goals of captured steps."""
    what = "[captured step](#one-graph), of the emitted one and of the idiom, geometric means of these eleven"
    means = f"{number(find_mean(steps, 'eager'))}, {number(find_mean(steps, 'idiom'))}"
    yield line(what, "0.70, 0.58", "none", means, "`python -m benchmarks.captured`")
    what = "of the eager one, geometric mean of the captured examples"
    by = "`python -m benchmarks.captured --examples`"
    yield line(what, "0.70", "none", number(find_mean(examples, "eager")), by)
    # The tests of the captured examples say this one.
    now = "32 of 33; one has sparse gradients"
    yield line("examples captured whole, unedited", "all", "none", now, "`python -m tests.conformance.captured`")


def _tell_peers(rows: Rows) -> str:
    """Return the goal next to other libraries."""
    first: dict[tuple[str, str], str] = {}
    for row in sorted(rows, key=lambda row: row["steps/s"]):
        first[row["step"], FRAMEWORKS[row["framework"]]] = row["library"]
    lost = [f"`{step}` on {name}" for (step, name), title in sorted(first.items()) if not title.startswith("stepgraph")]
    now = f"first, but not in {', '.join(lost)}" if lost else "first on both frameworks in all three"
    what = "steps per second next to [other libraries](#other-libraries): a small MLP, a GAN, SAC"
    return line(what, "first", "", f"{now} ([details](#other-libraries))", "`python -m benchmarks.peers`")


def _tell_processes(rows: Rows) -> str:
    """Return the goal of two processes."""
    known = [row for row in rows if row["variant"] == "stepgraph, bucket_mb: 1, rows known"]
    one, two = (
        number(max(row["of DDP"][0] for row in known if row["step"].startswith(models)))
        for models in ("one model", "two models")
    )
    now = f"[at most {one}; {two}](#several-processes) with buckets and known rows"
    return line("two processes, of DDP", "1.05; 0.9 for two models", "", now, "`python -m benchmarks.processes`")

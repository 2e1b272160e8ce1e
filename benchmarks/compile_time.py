"""Compile time of two trees of this project, interleaved: ``python -m benchmarks.compile_time BEFORE [AFTER]``.

With ``--ops 1000`` it is that of specs of a size, in eight shapes: microseconds an op to read JSON and to compile, and
the peak of memory, each in a process of its own. The last columns are floors of this tree: to read takes at least as
long as to parse the JSON and to make the spec, to compile as long as to make what a plan has besides the spec. Python's
decoder and unpickler, written in C, do this once more. With ``--of 1000``, too, it is one tree with two sizes.

Otherwise each tree is a process, which compiles and emits a spec when it is asked to. In each round each process does
every spec once, in random order; a ratio is taken within a round, of the processor's time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, add_json, report
from benchmarks.shapes import SHAPES

HERE = Path(__file__).resolve().parents[1]
SPECS = ("fgsm/fgsm", "gan-digits/gan-digits", "td3/td3", "sac/sac")
PAIRS = 16
ROUNDS = 15

WORKER = """
import gc, sys, time
sys.path.insert(0, sys.argv[1])
from compiler import compile_step
from graphspec import load
from runtime import emit
for line in sys.stdin:
    text = eval(line)
    gc.collect(); gc.disable()
    begin = time.process_time()
    emit(compile_step(load(text)))
    print(time.process_time() - begin, flush=True)
    gc.enable()
"""


def make_wide(pairs: int) -> str:
    """Return a spec of many pairs of models that judge each other."""
    lines = ["graphspec: 1", "name: wide", "inputs: {x: {shape: [batch, 4]}}", "models:"]
    for each in range(pairs):
        lines += [f"  {name}{each}: {{layers: [{{linear: 4}}], optimizer: adam}}" for name in ("g", "d")]
    lines.append("ops:")
    for each in range(pairs):
        lines += [
            f"  fake{each}: {{forward: g{each}, inputs: x}}",
            f"  on{each}: {{forward: d{each}, inputs: fake{each}, after: []}}",
            f"  gl{each}: {{loss: mse, inputs: [on{each}, 1.0]}}",
            f"  dl{each}: {{loss: mse, inputs: [on{each}, 0.0]}}",
            f"  step_d{each}: {{update: d{each}, loss: dl{each}}}",
            f"  step_g{each}: {{update: g{each}, loss: gl{each}}}",
            f"  slow{each}: {{ema: g{each}, decay: 0.9, every: 2}}",
        ]
    return "\n".join(lines) + "\n"


ONCE = """
import gc, io, json, pickle, resource, sys, time
sys.path.insert(0, sys.argv[1])
from compiler import compile_step
from graphspec import load
text = sys.stdin.read()
compile_step(load(sys.argv[2]))  # what is imported late
begin = time.process_time()
spec = load(text)
loaded = time.process_time()
plan = compile_step(spec)
compiled = time.process_time()
found = [loaded - begin, compiled - loaded, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
def take(make, stored):
    begin = time.process_time()
    made = make(stored)  # what is made is freed later
    return time.process_time() - begin
class Pickler(pickle.Pickler):
    def persistent_id(self, each):
        return "spec" if each is plan.spec else None  # what is compiled is there already
class Unpickler(pickle.Unpickler):
    def persistent_load(self, mark):
        return plan.spec
if sys.argv[3:]:
    gc.disable()
    unread = load(text)  # one that was compiled knows more places
    found.append(take(json.loads, text) + take(pickle.loads, pickle.dumps(unread)))
    stored = io.BytesIO()
    Pickler(stored).dump(plan)
    found.append(take(lambda bytes: Unpickler(io.BytesIO(bytes)).load(), stored.getvalue()))
print(json.dumps(found))
"""


def measure_shapes(variants: Mapping[str, tuple[str, int]], rounds: int, shapes: Sequence[str]) -> Iterator[Row]:
    """Yield for each shape microseconds an op and megabytes of each variant, a tree with a number of ops.

    And the ratio of the last to the first, of the time for each op, and the floors of the last. A first that fails, as
    an older tree does in which a long chain is recursion, is left out.
    """
    shuffled, few = random.Random(0), json.dumps(SHAPES["coupled models"](14))
    first, last = next(iter(variants)), next(reversed(variants))
    for shape in shapes:
        found: dict[str, list[list[float]]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name in shuffled.sample([*found], len(found)):
                tree, ops = variants[name]
                command = [sys.executable, "-c", ONCE, tree, few, *(["floors"] if name == last else [])]
                text = json.dumps(SHAPES[shape](ops))
                done = subprocess.run(command, cwd=tree, input=text, capture_output=True, text=True, check=name == last)
                if done.returncode:
                    del found[name]
                    continue
                load, late, peak, *floors = json.loads(done.stdout)
                least = [1e6 * each / ops for each in floors]
                found[name].append([1e6 * load / ops, 1e6 * late / ops, load + late, peak, *least])
        medians = {name: [statistics.median(each) for each in zip(*found[name], strict=True)] for name in found}
        columns = ("load", "compile", "seconds", "MB")
        row: dict[str, Any] = {"shape": shape}
        row |= {name: dict(zip(columns, each[:4], strict=True)) for name, each in medians.items()}
        if first in found:
            pairs = zip(found[first], found[last], strict=True)
            row[f"of {first}"] = statistics.median((new[0] + new[1]) / (old[0] + old[1]) for old, new in pairs)
        yield {**row, "load floor": medians[last][4], "floor": medians[last][5]}


def show_shape(row: Row) -> str:
    """Return the line of a shape."""
    shown = [row[name] for name in row if name in ("before", "smaller", "now")]
    columns = "".join(f" {each['load']:7.1f} {each['compile']:8.1f} {each['MB']:5.0f}" for each in shown)
    ratio = next((f"{row[name]:7.3f}" for name in row if name.startswith("of ")), "the older tree fails")
    return f"{row['shape']:22s}{columns} {ratio} {row['load floor']:10.1f} {row['floor']:7.1f}"


def measure_specs(before: str, after: str) -> Iterator[Row]:
    """Yield the milliseconds before and after for each spec, and the ratio with the 10th and 90th percentiles."""
    folder = Path(before) / "examples"  # what the older tree can read, both can
    texts = {name.split("/")[1]: (folder / f"{name}.yaml").read_text(encoding="utf-8") for name in SPECS}
    texts[f"{PAIRS} pairs"] = make_wide(PAIRS)
    command = [sys.executable, "-c", WORKER]
    workers = [
        subprocess.Popen([*command, tree], cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for tree in (before, after)
    ]

    def take(worker: subprocess.Popen[str], text: str) -> float:
        """Return the seconds that a tree takes for a spec."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(repr(text), file=worker.stdin, flush=True)
        return float(worker.stdout.readline())

    shuffled, found = random.Random(0), {name: ([], []) for name in texts}
    for number in range(ROUNDS + 1):
        for name, text in texts.items():
            for at in shuffled.sample((0, 1), 2):
                seconds = take(workers[at], text)
                if number:  # the first round imports what is imported late
                    found[name][at].append(seconds)
    for worker in workers:
        worker.terminate()
    for name, (old, new) in found.items():
        ratios = sorted(second / first for first, second in zip(old, new, strict=True))
        of_before = [statistics.median(ratios), ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]]
        first, second = 1e3 * statistics.median(old), 1e3 * statistics.median(new)
        yield {"spec": name, "before ms": first, "after ms": second, "of before": of_before}


def show_spec(row: Row) -> str:
    """Return the line of a spec."""
    middle, low, high = row["of before"]
    return f"{row['spec']:12s} {row['before ms']:10.1f} {row['after ms']:10.1f} {middle:6.2f}  {low:.2f} - {high:.2f}"


def main() -> None:
    """Print a table of shapes, or of specs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default=str(HERE))
    parser.add_argument("--ops", type=int, help="compile the shapes of this size")
    parser.add_argument("--of", type=int, metavar="OPS", help="those of this size, too, of the later tree alone")
    parser.add_argument("--rounds", type=int, default=5, help="of the shapes")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="one of them; may be repeated (default: all)")
    add_json(parser)
    asked = parser.parse_args()
    if asked.ops:
        variants = {"before": (asked.before, asked.ops), "now": (asked.after, asked.ops)}
        if asked.of:
            variants = {"smaller": (asked.after, asked.of), "now": (asked.after, asked.ops)}
        elif asked.before == asked.after:
            del variants["before"]
        columns = "".join(f" {'load':>7s} {'compile':>8s} {'MB':>5s}" for _ in variants)
        print(f"{'shape':22s}{columns} {'ratio':>7s} {'load floor':>10s} {'floor':>7s}")
        rows = measure_shapes(variants, asked.rounds, asked.shape or tuple(SHAPES))
        report(rows, show_shape, asked.json, asked.rounds)
    else:
        print(f"{'spec':12s} {'before ms':>10s} {'after ms':>10s} {'ratio':>6s}  p10 - p90")
        report(measure_specs(asked.before, asked.after), show_spec, asked.json, ROUNDS)


if __name__ == "__main__":
    main()

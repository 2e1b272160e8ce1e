"""How long a step takes with more and more processes, and where it stops scaling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.program import Initializer, ModelDecl, ModeProgram, TensorDecl
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.messages import find_messages
from compiler.plan.reachable_functions import find_pattern
from compiler.plan.simulate.cluster import Cluster, ClusterProblem, Duration
from compiler.plan.simulate.memory import Holdings, Memory, estimate_memory, find_holdings
from compiler.plan.simulate.timeline import Passage, Rows, Speed, Timeline, find_timeline, walk
from compiler.plan.simulate.work import COST
from graphspec.declare.options import BATCH

LEAST_GAIN = 1.1
"""Where twice as many processes make a step of the same batch less than so many times faster, it stops scaling."""
LEAST_EFFICIENCY = 0.5
"""Where processes with a batch each are less efficient than this, they stop scaling."""
MUCH = 10**9
"""The operations of a row in a forward of unknown cost: so many that everything else is negligible."""
Reason: TypeAlias = Literal["rows", "undivided", "cores", "fixed", "latency", "bandwidth"]
"""Why more processes do not help: no rows are left; work on rows is not divided, as what every process draws for all;
processes share cores; work does not depend on rows; the hops of messages; their bytes."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A step of so many processes: times in seconds, sizes in bytes, of one process with the most rows."""

    ranks: int
    rows: int
    by_rows: float
    """What is computed on rows."""
    fixed: float
    """What is computed for any number of rows."""
    waits: Mapping[str, Duration]
    """By message, how long it is waited for."""
    sent: float
    memory: Memory
    speedup: float = 1.0
    """How many times more rows a second than by one process."""

    @property
    def compute(self) -> float:
        """Return what is computed."""
        return self.by_rows + self.fixed

    @property
    def waited(self) -> float:
        """Return how long all messages are waited for."""
        return sum(each.total for each in self.waits.values())

    @property
    def step(self) -> float:
        """Return how long a step takes."""
        return self.compute + self.waited

    @property
    def efficiency(self) -> float:
        """Return the speedup for each process."""
        return self.speedup / self.ranks


class Limit(Struct, frozen=True, kw_only=True):
    """Where a step stops scaling, and why; ``more``: the estimate that shows it, None where no rows are left for it."""

    ranks: int
    reason: Reason
    message: str = ""
    """The message whose hops or bytes it is."""
    at: Estimate
    more: Estimate | None = None


class Simulation(Struct, frozen=True, kw_only=True):
    """A step on a cluster, by the number of its processes."""

    name: str
    mode: str
    is_sharded: bool
    cluster: Cluster
    batch: int
    one: Estimate
    """A single process."""
    estimates: tuple[Estimate, ...]
    left_out: tuple[int, ...]
    """The numbers of processes for which the batch has too few rows."""
    limit: Limit | None
    """None where it scales as far as was asked."""
    shares: Mapping[str, float]
    """Function -> in which share of the steps it runs."""
    notes: tuple[str, ...]


class _Function(Struct, frozen=True, kw_only=True):
    """A function with its share of the steps."""

    name: str
    share: float
    timeline: Timeline
    holdings: Holdings


class _Model(Struct, frozen=True, kw_only=True):
    """All that does not depend on the number of processes."""

    plan: CompiledStep
    cluster: Cluster
    mode: str
    batch: int
    functions: tuple[_Function, ...]
    sizes: Mapping[str, int]
    """The free dimensions other than the batch."""
    per_operation: float = 0.0
    per_kernel: float = 0.0

    @property
    def parts(self) -> int:
        """Return into how many micro-batches each process splits its rows."""
        return self.plan.spec.micro_batches if self.mode == "train" else 1

    def has_rows(self, ranks: int) -> bool:
        """Return whether each of so many processes has a row for each of its micro-batches."""
        rows = self.batch if self.cluster.scaling == "weak" else self.batch // ranks
        return rows >= self.parts

    def estimate(self, ranks: int) -> Estimate:
        """Return the step of so many processes, the mean over its functions; memory is that of the largest."""
        is_weak = self.cluster.scaling == "weak"
        whole = self.batch * ranks if is_weak else self.batch
        rows = ceil(whole / ranks)
        counts: Mapping[Rows, int] = {"own": rows, "part": ceil(rows / self.parts), "whole": whole}
        sizes: Mapping[Rows, Mapping[str, int]] = {each: {**self.sizes, BATCH: count} for each, count in counts.items()}
        plan = replace(self.plan, pace=replace(self.plan.pace, batch=whole))
        parallel, cores = plan.program.parallel, self.cluster.cores
        bucket = None if parallel is None or parallel.bucket_mb is None else 1e6 * parallel.bucket_mb
        speed = Speed(
            processes=ranks,
            sizes=sizes,
            per_operation=self.per_operation,
            per_kernel=self.per_kernel,
            slowdown=1.0 if cores is None else max(1.0, ranks / cores),
        )
        functions = {each.name: each for each in plan.program.mode(self.mode).functions}
        passages: list[tuple[float, Passage]] = []
        memory: list[Memory] = []
        for each in self.functions:
            messages = find_messages(plan, functions[each.name], ranks, self.sizes)
            passages.append((each.share, walk(each.timeline, messages, self.cluster, speed, bucket)))
            memory.append(estimate_memory(plan, each.holdings, messages, ranks, sizes))
        waits: dict[str, Duration] = {}  # the mean of what is waited for, by message
        for share, passage in passages:
            for name, waited in passage.waits.items():
                waits[name] = waits.get(name, Duration()) + waited.scale(share)
        return Estimate(
            ranks=ranks,
            rows=rows,
            by_rows=sum(share * each.by_rows for share, each in passages),
            fixed=sum(share * each.fixed for share, each in passages),
            waits=waits,
            sent=sum(share * each.sent for share, each in passages) if ranks > 1 else 0.0,
            memory=max(memory, key=lambda each: each.total),
        )

    def compare(self, estimate: Estimate, one: Estimate) -> Estimate:
        """Return an estimate with its speedup over one process."""
        more = estimate.ranks if self.cluster.scaling == "weak" else 1
        return replace(estimate, speedup=more * one.step / estimate.step if estimate.step else float(estimate.ranks))


def simulate(plan: CompiledStep, mode: str, cluster: Cluster) -> Simulation:
    """Return how long a step takes on a cluster; the plan is that of any number of processes.

    Raises :class:`ClusterProblem` for what must be known of the step and is not.
    """
    completed = replace(plan, program=replace(plan.program, models=tuple(_complete_models(plan, cluster))))
    batch = cluster.sizes.get(BATCH, plan.pace.batch)
    if batch is None:
        raise ClusterProblem("the number of rows of a batch is missing", "add it, as in `batch=256`")
    program = completed.program.mode(mode)
    shares = find_shares(program, completed)
    functions = tuple(
        _Function(
            name=each.name,
            share=shares[each.name],
            timeline=find_timeline(completed, each),
            holdings=find_holdings(completed, each),
        )
        for each in program.functions
        if each.name in shares
    )
    sizes = {name: size for name, size in cluster.sizes.items() if name != BATCH}
    model = _Model(plan=completed, cluster=cluster, mode=mode, batch=batch, functions=functions, sizes=sizes)
    model, notes = _complete_sizes(model)
    model = _calibrate(model)
    one = model.estimate(1)
    found = {ranks: model.compare(model.estimate(ranks), one) for ranks in cluster.ranks if model.has_rows(ranks)}
    if not found:
        most = batch // model.parts
        message = f"a batch of {batch} has rows for {most} processes at most, and for none of those that are asked for"
        raise ClusterProblem(message, "ask for fewer, give a larger `batch=...`, or `scaling=weak`")
    # What the estimates leave out.
    unknown = [each for each in completed.program.models if each.kind == "class" and not each.parameters]
    for name in (each.name for each in unknown if each.like is None):
        notes.append(
            f"the number of parameters of '{name}' is not known: messages and memory are counted "
            f"without them; set `{name}.parameters=...`"
        )
    if any(each.is_synced for each in completed.program.models):
        notes.append("what `batch_norm` with `sync` sends is not counted")
    return Simulation(
        name=plan.program.name,
        mode=mode,
        is_sharded=plan.program.is_sharded,
        cluster=cluster,
        batch=batch,
        one=one,
        estimates=tuple(found.values()),
        left_out=tuple(ranks for ranks in cluster.ranks if ranks not in found),
        limit=_find_limit(model, one, max(cluster.ranks)),
        shares=shares,
        notes=tuple(notes),
    )


def find_shares(mode: ModeProgram, plan: CompiledStep) -> Mapping[str, float]:
    """Return in which share of the steps each function runs, once all gates are open that will be.

    Where the number of a step does not tell, it is the function that does the most.
    """
    pattern = find_pattern(mode, plan.program) if len(mode.functions) > 1 else None
    if pattern is None:
        return {max(mode.functions, key=lambda each: len(each.instructions)).name: 1.0}
    taken = pattern.names[pattern.settled if pattern.is_whole else 0 :]
    shares: dict[str, float] = {}
    for names in taken:
        for name in names:
            shares[name] = shares.get(name, 0.0) + 1 / len(names) / len(taken)
    return shares


def _complete_models(plan: CompiledStep, cluster: Cluster) -> Iterator[ModelDecl]:
    """Yield the models, those of classes with as many parameters as they are said to have."""
    roots: dict[str, str] = {}
    for each in plan.program.models:
        root = roots[each.name] = each.name if each.like is None else roots[each.like]
        count = cluster.parameters.get(root)
        if each.kind != "class" or count is None:
            yield each
        else:
            whole = TensorDecl(name="parameters", shape=(count,), initializer=Initializer(kind="zeros"))
            yield replace(each, parameters=(whole,))


def _complete_sizes(model: _Model) -> tuple[_Model, list[str]]:
    """Return the model with a number for all that is free, and what had to be assumed, which a measured step allows."""
    lines = [line for each in model.functions for line in each.timeline.lines]
    free = sorted(frozenset[str]().union(*(line.work.free for line in lines)) - {BATCH, *model.sizes})
    costs = {name.removeprefix(COST): name for name in free if name.startswith(COST)}
    sizes, notes = dict(model.sizes), list[str]()
    is_measured = model.cluster.step is not None
    for name in (name for name in free if not name.startswith(COST)):
        if not is_measured:
            message = f"the size `{name}` of a value is missing"
            raise ClusterProblem(message, f"add it, as in `{name}=32`, or the time that a step takes: `step=12ms`")
        sizes[name] = 1
        notes.append(f"the size `{name}` is not known, and taken as 1: add `{name}=...`")
    sizes |= {costs[name]: round(cost) for name, cost in model.cluster.costs.items() if name in costs}
    unknown = {name: free_size for name, free_size in costs.items() if free_size not in sizes}
    if unknown and not is_measured:
        name = next(iter(unknown))
        message = f"the cost of a forward of model '{name}' is not known: only its class knows its layers"
        help = f"add the operations of a row, as in `{name}.flops=4GFLOP`, or the time that a step takes: `step=12ms`"
        raise ClusterProblem(message, help)
    counted = {**sizes, **dict.fromkeys(unknown.values(), 0), BATCH: 1}
    known = [cost for line in lines if line.is_forward and (cost := line.work.count(counted))]
    mean = round(sum(known) / len(known)) if known else MUCH
    sizes |= dict.fromkeys(unknown.values(), mean)
    for name in unknown:
        notes.append(
            f"the cost of a forward of '{name}' is not known: "
            + (
                "the mean of the others is used"
                if known
                else "all such forwards cost the same, everything else is negligible"
            )
            + f"; set `{name}.flops=...`"
        )
    return replace(model, sizes=sizes), notes


def _calibrate(model: _Model) -> _Model:
    """Return the model with the time of an operation, and of a kernel."""
    cluster = model.cluster
    counts: Mapping[str, int] = {**model.sizes, BATCH: model.batch}
    part = {**counts, BATCH: ceil(model.batch / model.parts)}
    operations = kernels = 0.0
    for each in model.functions:
        for line in each.timeline.lines:
            work = line.work.by_rows if cluster.overhead else line.work
            operations += each.share * work.count(part if line.rows == "part" else counts)
            kernels += each.share * line.kernels
    per_kernel = cluster.overhead / kernels if kernels else 0.0
    if not operations and not kernels:
        raise ClusterProblem(f"a step computes nothing in mode {model.mode}", "simulate another mode: `--mode train`")
    if cluster.step is None:
        return replace(model, per_operation=1 / cluster.flops if cluster.flops else 0.0, per_kernel=per_kernel)
    left = cluster.step - cluster.overhead
    if not operations:
        return replace(model, per_kernel=cluster.step / kernels if kernels else 0.0)
    return replace(model, per_operation=left / operations, per_kernel=per_kernel)


def _find_limit(model: _Model, one: Estimate, most: int) -> Limit | None:
    """Return where a step stops scaling while its processes double from one on; None where it does not by ``most``."""
    is_weak = model.cluster.scaling == "weak"
    before, ranks = one, 1
    while ranks <= most:
        if not model.has_rows(2 * ranks):
            return Limit(ranks=ranks, reason="rows", at=before)
        more = model.compare(model.estimate(2 * ranks), one)
        if is_weak and more.efficiency < LEAST_EFFICIENCY and 2 * ranks <= most:
            reason, message = _explain(model, one, more, 1.0)
            return Limit(ranks=ranks, reason=reason, message=message, at=before, more=more)
        if not is_weak and before.step < LEAST_GAIN * more.step:
            reason, message = _explain(model, before, more, 0.5)
            return Limit(ranks=ranks, reason=reason, message=message, at=before, more=more)
        before, ranks = more, 2 * ranks
    return None


def _explain(model: _Model, before: Estimate, after: Estimate, ideal: float) -> tuple[Reason, str]:
    """Return why a step takes longer than the ``ideal`` share of one before, and the message that is most to blame.

    The difference is a sum: of what is computed on rows, of what is computed for any, and of the hops and the
    bytes of all that is waited for. The largest of these is the reason.
    """
    none = Duration()
    lost = {name: each + before.waits.get(name, none).scale(-ideal) for name, each in after.waits.items()}
    cores = model.cluster.cores
    on_rows: Reason = "cores" if cores is not None and after.ranks > cores else "undivided"
    losses: dict[Reason, float] = {
        "latency": sum(each.latency for each in lost.values()),
        "bandwidth": sum(each.transfer for each in lost.values()),
        "fixed": after.fixed - ideal * before.fixed,
        on_rows: after.by_rows - ideal * before.by_rows,
    }
    reason = max(losses, key=lambda each: losses[each])
    if reason not in ("latency", "bandwidth"):
        return reason, ""
    sizes = {name: each.latency if reason == "latency" else each.transfer for name, each in lost.items()}
    return reason, max(sizes, key=lambda name: sizes[name])

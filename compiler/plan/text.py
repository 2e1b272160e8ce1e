"""The plan as text: every function line by line, then the decisions in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

from compiler.ir.instructions import Commit, Emit, Instruction, Release
from compiler.ir.program import Function
from compiler.ir.value import Read, Write
from compiler.passes.datasets import format_datasets, is_particular
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.folds import PlanLine, find_hidden, group_iterations
from compiler.plan.formula import Lines, find_lines
from compiler.plan.left_out import list_left_out
from compiler.plan.messages import describe_messages
from compiler.plan.overflow import describe_overflow
from compiler.plan.reachable_functions import describe_assumption, describe_draws, describe_steps
from compiler.plan.settings import find_groups, format_group, format_optimizer
from compiler.plan.timetable import describe_moments, find_applied, find_schedules, format_entry
from compiler.plan.waits import find_waits
from graphspec.diagnostics import escape


def flags_of(instruction: Instruction) -> tuple[str, ...]:
    """Return what is special about how an instruction runs."""
    detached = (each for each in instruction.refs if each.detach)
    return (
        *instruction.flags,
        *((f"message {instruction.message}",) if instruction.message else ()),
        *(("rows",) if instruction.rows else ()),
        *((f"if {format_commit(instruction.commits)}",) if instruction.commits else ()),
        *(f"{ref.name} detached" for ref in detached),
    )


def format_commit(commits: Commit) -> str:
    """Return the verdicts under which a write takes place: `step_d.finite and step_g.finite`."""
    return " or ".join(" and ".join(way) for way in commits)


def cells_of(line: Sequence[Instruction]) -> str:
    """Return the versions that a line reads and writes: ``net.params@0 -> @1``; optimizers are left out."""
    reads = [*dict.fromkeys(at.at for each in line for at in _models(each.reads))]
    writes = [at.at for each in line for at in _models(each.writes)]
    written, read = {at.cell: at.version for at in writes}, {at.cell for at in reads}
    shown = (f"{at} -> @{written[at.cell]}" if at.cell in written else str(at) for at in reads)
    return ", ".join([*shown, *(f"-> {at}" for at in writes if at.cell not in read)])


def _models(versions: Iterable[Read | Write]) -> list[Read | Write]:
    """Return the accesses to models."""
    return [at for at in versions if at.cell.kind != "optimizer"]


SHOWN = ("DEFER", "RETAIN", "CREATE_GRAPH", "SNAPSHOT", "RECOMPUTE", "FREEZE", "NO_GRAD", "MERGE", "ADD", "GATHER")
"""Decisions that the text lists; `explain` lists all."""
WIDEST = 60


def print_plan(plan: CompiledStep, mode: str, processes: int = 1) -> str:
    """Return the plan of a mode as text; for several processes with what they tell each other."""
    program = plan.program
    lines = [f"{program.name}: {mode} step for {program.backend}, order {program.order}"]
    steps = describe_steps(program.mode(mode), program)
    functions = {function.name: function for function in program.mode(mode).functions}
    assumption = describe_assumption(program.mode(mode), program)
    lines += ["", assumption] if assumption else []
    whole: list[Table] = []  # a function that differs little from one of these is printed by the difference
    for function in map(functions.__getitem__, steps or functions):
        lines += ["", f"{function.name}  ({describe_function(plan, function, steps.get(function.name, ''))})"]
        table = Table(function=function, rows=tuple(_find_rows(plan, function)))
        likest = max(whole, key=lambda each: len({*each.words} & {*table.words}), default=None)
        old, said = (likest.rows, likest.words) if likest is not None else ((), ())
        changes: list[tuple[str, Row]] = []
        for change, start, end, first, last in SequenceMatcher(a=said, b=table.words, autojunk=False).get_opcodes():
            if change != "equal":
                changes += [("  - ", row) for row in old[start:end]]
                changes += [("  + ", row) for row in table.rows[first:last]]
        if likest is None or len(changes) * 2 > len(table.rows):
            whole.append(table)
            lines += _align([("  ", row) for row in table.rows])
        else:
            lines += [f"  as {likest.function.name}" + (", except for" if changes else ""), *_align(changes)]
    for title, sentences in list_details(plan, mode, processes).items():
        lines += ["", title, *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(map(escape, lines)) + "\n"


def list_details(plan: CompiledStep, mode: str, processes: int = 1) -> dict[str, list[str]]:
    """Return what a plan says below its functions, by title: numbers of the optimizers, schedules, warnings, notes."""
    program = plan.program
    schedules = (
        f"{'.'.join(part for part in (entry.name, entry.option) if part)}: {format_entry(entry)}"
        for entry in find_schedules(program, mode)
    )
    details: dict[str, Iterable[str]] = {
        f"messages of {processes} processes": describe_messages(plan, mode, processes) if processes > 1 else (),
        "left out": list_left_out(plan, mode),
        "drawn": describe_draws(program.mode(mode)),
        "optimizers": map(format_optimizer, find_applied(program, mode)),
        "overflow": describe_overflow(plan, mode),
        "groups": map(format_group, find_groups(plan, mode)),
        "schedules": schedules,
        "moments": describe_moments(plan, mode),
        "not counted yet (the steps above are those without it)": (each.message for each in plan.pending),
        "warnings": (f"{problem.code} {problem.message}" for problem in plan.warnings),
        "notes": plan.notes,
    }
    return {title: found for title, sentences in details.items() if (found := [*sentences])}


class Row(Struct, frozen=True, kw_only=True):
    """A line of a function: an instruction, or a decision, which has no number."""

    kind: str
    text: str
    notes: str = ""
    number: int | None = None

    @property
    def words(self) -> tuple[str, str, str]:
        """Return what it says, without its number."""
        return self.kind, self.text, self.notes


class Table(Struct, frozen=True, kw_only=True):
    """A function as rows."""

    function: Function
    rows: tuple[Row, ...]

    @property
    def words(self) -> tuple[tuple[str, str, str], ...]:
        """Return what its rows say."""
        return tuple(row.words for row in self.rows)


def _align(rows: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """Yield marked rows as lines with columns."""
    numbered = [row for _, row in rows if row.number is not None]
    column = 1 + max((9, *(len(row.kind) for row in numbered)))
    width = min(max((len(row.text) for row in numbered), default=0), WIDEST)
    for mark, row in rows:
        if row.number is None:
            yield mark + (f"{row.kind:<13}{row.text}" if row.kind else row.text)
        else:
            yield f"{mark}{row.number:3d}  {row.kind:<{column}}{row.text:<{width}}  {row.notes}".rstrip()


def describe_function(plan: CompiledStep, function: Function, steps: str) -> str:
    """Return what a function writes, and in which steps it runs."""
    averaged = [gate.op for gate in plan.program.mode(function.mode).gates if gate.clock == "averaged"]
    used = ", ".join(op for op in function.gated if op in averaged)
    drawn = [gate.op for gate in plan.program.mode(function.mode).gates if gate.draw and gate.op in function.gated]
    if drawn:
        steps = f"with {', '.join(drawn)}" if steps == "every step" else f"{steps} with {', '.join(drawn)}".lstrip()
    when = f"; {steps}" if steps else ""
    when += f"; once there is {used}" if used else ""
    when += f"; for {format_datasets(function.datasets)}" if is_particular(function, plan.program) else ""
    return f"writes: {', '.join(group_iterations(function.active, plan.spec)) or 'nothing'}{when}"


def _find_rows(plan: CompiledStep, function: Function) -> Iterator[Row]:
    """Yield the rows of a function: its instructions, iterations like the first as one row, then the decisions."""
    graph, described = plan.graphs[function.name], describe_lines(plan, function)
    hidden = find_hidden([line for _, line in described], plan.spec)
    for at, (row, _) in enumerate(described):
        fold = hidden.get(at)
        if fold is None:
            yield row
        elif fold.first == at:
            yield Row(kind="repeat", text=fold.text, notes=fold.writes, number=at + 1)
    unseen = {each.id for at in hidden for each in described[at][1].instructions}
    decisions = [each for each in graph.decisions if each.code in SHOWN and each.node not in unseen]
    writes = any(each.active for each in plan.program.mode(function.mode).functions)
    if writes and not any(decision.code == "DEFER" for decision in decisions):
        yield Row(kind="", text="no update is deferred")
    yield from (Row(kind=decision.code, text=decision.text) for decision in decisions)


def describe_lines(plan: CompiledStep, function: Function) -> list[tuple[Row, PlanLine]]:
    """Return the rows of all instructions of a function that have lines, each with what it says."""
    graph, lines = plan.graphs[function.name], Lines.of(function.instructions)
    waits, owners = find_waits(graph), find_lines(graph)
    found: list[tuple[Row, PlanLine]] = []
    for instruction in (each for each in function.instructions if each.has_line and not isinstance(each, Release)):
        number, line = len(found) + 1, lines.find(instruction)
        if isinstance(instruction, Emit):
            text = instruction.phrase or f"nothing: no output is computed in {function.mode} mode"
            row, says = Row(kind="return", text=text, number=number), (text,)
        else:
            flags = [flag for each in line for flag in flags_of(each)]
            awaited = (owners.get(edge.before, edge.before) for edge in waits.get(instruction.id, ()))
            labels = dict.fromkeys(graph.nodes[name].label for name in awaited)
            flags += [f"waits for {', '.join(labels)}"] if labels else []
            notes = "  ".join(filter(None, (cells_of(line), f"[{', '.join(flags)}]" if flags else "")))
            row = Row(kind=instruction.kind(), text=lines.write(instruction), notes=notes, number=number)
            ids = {each.id for each in line}
            decided = (f"{each.code} {each.text}" for each in graph.decisions if each.node in ids)
            says = (row.kind, row.text, row.notes, *decided)
        found.append((row, PlanLine(instructions=line, says=says)))
    return found

"""DatasetActivity: what a mode does on a batch of each data set, and the gates of its ops."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.instructions import Instruction
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.program import Function, Gate, Mode, Program, drop_of
from compiler.ir.step_graph import StepGraph
from compiler.passes.activate import Outputs, find_live_gates, find_outputs, find_undecided
from compiler.passes.commits import find_conditional_ops
from compiler.timing.gates import sort_gates
from compiler.timing.period import find_skippable
from compiler.timing.units import ClockRates, Pace, PaceProblem
from graphspec.analysis.datasets import find_datasets, find_inputs, find_places, find_possible
from graphspec.analysis.iterations import find_repeated
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic

WORDS = {"flush": "applies", "drop": "forgets"}
"""What an update does with an open window at the end of an epoch."""


def time_windows(gates: Iterable[Gate], spec: GraphSpec, epoch: int | None) -> Iterator[Gate]:
    """Yield gates with the length of an epoch, where windows restart with each; uncountable ones are left out.

    :func:`check_windows` reports those.
    """
    for gate in gates:
        op = spec.ops.get(gate.op)
        if isinstance(op, UpdateOp) and op.at_epoch_end != "carry":
            yield replace(gate, epoch=epoch, flush=epoch is not None and op.at_epoch_end == "flush")
        elif gate.clock != "epochs":
            yield gate
        elif epoch is not None:
            yield replace(gate, epoch=epoch)


def find_closing(spec: GraphSpec) -> frozenset[str]:
    """Return the gates that fire at the end of an epoch, regardless of the batch of its last step."""
    ending = [name for name, op in spec.ops.items() if isinstance(op, UpdateOp) and op.at_epoch_end != "carry"]
    return frozenset(gate for name in ending for gate in (name, drop_of(name)))


def has_ends(spec: GraphSpec) -> bool:
    """Return whether some window does not continue into the next epoch."""
    return any(isinstance(op, UpdateOp) and op.at_epoch_end != "carry" for op in spec.ops.values())


def check_windows(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every update whose window ends with an epoch of unknown length."""
    for name, op in spec.ops.items():
        if not isinstance(op, UpdateOp) or op.at_epoch_end == "carry":
            continue
        problem = _find_problem(spec, name, op, pace)
        if problem is not None:
            done = WORDS[op.at_epoch_end]
            yield Diagnostic(
                code="E-PACE",
                message=f"'{name}' {done} what it has gathered at the end of an epoch, which cannot be counted: "
                f"{problem.message}",
                span=spec.span("ops", name, "accumulate", "on_epoch_end"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.remedy(spec),
            )


def check_numbers(whole: ModeGraph, graph: StepGraph, dataset: str) -> Iterator[Diagnostic]:
    """Yield E-ABSENT for what ends a window and uses a value that is not there on batches of the step's data set.

    The end of an epoch may be a step on a data set that the update does not run on: gradients are not taken there, and
    what they are multiplied with may not be made.
    """
    spec, closing = whole.spec, find_closing(whole.spec)
    made = {value for node in graph.nodes.values() for value in node.provides} | set(find_inputs(spec, dataset))
    known = {*whole.producers, *spec.inputs}
    for node in (node for node in graph.nodes.values() if node.admission in closing):
        needed = (use.value for use in node.uses if not use.optional and use.value in known)
        for value in (value for value in dict.fromkeys(needed) if value not in made):
            yield Diagnostic(
                code="E-ABSENT",
                message=f"'{node.op}' uses '{value}' at the end of an epoch, in a step on a batch of '{dataset}', "
                f"where '{value}' is not computed",
                span=spec.span("ops", node.admission, "accumulate", "on_epoch_end"),
                label="an epoch may end with a batch of any data set",
                help="write `on_epoch_end: carry`, or apply what was gathered without this value",
            )


def _find_problem(spec: GraphSpec, name: str, op: UpdateOp, pace: Pace) -> PaceProblem | None:
    """Return why the end of an epoch is not known; None where it is."""
    if op.mode not in (None, ("train",)):
        return PaceProblem(f"'{name}' also runs in modes that count their own steps", "write `mode: train` on it")
    try:
        ClockRates(pace=pace).steps(Duration(count=1, unit="epochs"))
    except PaceProblem as problem:
        return PaceProblem(problem.message, "or write `on_epoch_end: carry`", unit=problem.unit)
    held = find_skippable(spec, (op.every,)) if op.at_epoch_end == "flush" and isinstance(op.every, str) else None
    if held is not None:
        message = f"'{held}' is skipped in steps whose gradients are not finite, and such steps do not count"
        return PaceProblem(message, "write `on_epoch_end: carry`, or `drop`")
    return None


class DatasetActivity(Struct, frozen=True, kw_only=True):
    """The data sets of a mode: what a step on a batch of each returns, and the ops that fire in all of its steps."""

    gates: tuple[Gate, ...]
    outputs: Mapping[str, Outputs]
    """By data set; there is one without a name where the spec names none."""
    always: Mapping[str, frozenset[str]]
    """By data set: the ops without a gate."""
    undecided: frozenset[str]
    """Gates whose firing no clock determines, because they count writes that may be skipped."""
    places: Mapping[str, frozenset[str]]
    """By op: the data sets that it runs on."""
    closing: frozenset[str]
    """The gates that end windows with an epoch, regardless of the data set of its last step."""
    are_named: bool
    """Each call of a step names the data set of its batch."""

    @classmethod
    def of(
        cls,
        spec: GraphSpec,
        mode: Mode,
        nodes: Mapping[str, Instruction],
        others: tuple[Gate, ...] = (),
        epoch: int | None = None,
    ) -> DatasetActivity:
        """Return the activity of a mode; ``others`` are gates of what is no op, ``epoch`` is its length in steps."""
        datasets, possible = find_datasets(spec), find_possible(spec, mode)
        places = find_places(spec)
        closing = find_closing(spec)
        nodes = {key: node for key, node in nodes.items() if not places[node.op].isdisjoint(possible)}
        outputs: dict[str, Outputs] = {}
        admitted: dict[str, frozenset[str]] = {}
        for each in possible:
            outputs[each] = find_outputs(spec, mode, _restrict(nodes, each, places))
            view = _restrict(nodes, each, places, closing)
            admitted[each] = frozenset(node.admission for node in view.values())
        restricted = {
            name: tuple(each for each in possible if each in found)
            for name, found in places.items()
            if not found.issuperset(possible)
        }
        demanded = tuple(dict.fromkeys(value for each in outputs.values() for value in each.demanded))
        live = time_windows(find_live_gates(spec, nodes, demanded, restricted), spec, epoch)
        repeated = find_repeated(spec).values() if any(node.within for node in nodes.values()) else ()
        gates = (*others, *sort_gates(live, dict.fromkeys(repeated)))
        gated = frozenset(gate.op for gate in gates)
        return cls(
            gates=gates,
            outputs=outputs,
            always={each: found - gated for each, found in admitted.items()},
            undecided=find_undecided(gates, find_conditional_ops(nodes)),
            places=places,
            closing=closing,
            are_named=bool(datasets),
        )

    @property
    def anywhere(self) -> frozenset[str]:
        """Return the ops that fire in all steps on batches of some data set."""
        return frozenset[str]().union(*self.always.values())

    def restrict(self, whole: ModeGraph, dataset: str) -> ModeGraph:
        """Return the part of a graph that can run on a batch of a data set."""
        if not self.are_named:
            return whole
        return replace(whole, nodes=_restrict(whole.nodes, dataset, self.places, self.closing))


def _restrict(
    nodes: Mapping[str, Instruction], dataset: str, places: Mapping[str, frozenset[str]], closing: Container[str] = ()
) -> Mapping[str, Instruction]:
    """Return the nodes that can run on a batch of a data set: those of its ops, and what ends windows on any."""
    return {key: node for key, node in nodes.items() if dataset in places[node.op] or node.admission in closing}


def is_particular(function: Function, program: Program) -> bool:
    """Return whether a function is for batches of some data sets alone."""
    possible = {each for other in program.mode(function.mode).functions for each in other.datasets}
    return not possible.issubset(function.datasets)


def format_datasets(datasets: tuple[str, ...]) -> str:
    """Return data sets in words."""
    return ", ".join(each or "no data set" for each in datasets)

"""From a spec to a plan: every mode, every set of ops that fire together, all problems in one report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

from compiler.batch.losses import (
    find_batch_sums,
    find_counted,
    find_gathering,
    find_sums,
    find_totals,
    find_uneven,
    find_whole,
    is_parted,
)
from compiler.batch.scene import Parted, part_scene
from compiler.checks import GRAPH_CHECKS, OWNERSHIP_CHECKS, SCENE_CHECKS, check_recomputed
from compiler.checks.effects import (
    check_backend,
    check_dead,
    check_defer_never,
    check_durations,
    check_skip_scope,
    check_terms,
)
from compiler.checks.micro_batches import check_batch, check_coupled, check_split_counts
from compiler.checks.versions import find_unordered_problems
from compiler.declare import declare_inputs, declare_loss_scale, declare_models, declare_optimizers, declare_states
from compiler.facts.models import ModelFacts, Observations, describe_models
from compiler.facts.parameters import check_patterns, find_known_names
from compiler.ir.diagnose import Findings, span_of
from compiler.ir.hazard_table import TABLES
from compiler.ir.instructions import Instruction, Resting
from compiler.ir.mode_graph import Scene
from compiler.ir.program import Gate, Mode, ModeProgram, Program
from compiler.ir.step_graph import StepGraph
from compiler.lower.context import Lowering
from compiler.lower.table import lower_op
from compiler.lower.verdict import find_judged, is_scaled
from compiler.passes.activate import Outputs, find_absent_problems, find_firing
from compiler.passes.assemble import assemble
from compiler.passes.datasets import Turns, check_numbers
from compiler.passes.eval_averages import check_number, find_swaps, find_uses, map_models
from compiler.passes.freeze import find_asleep, find_resting, find_thaw_gates, rest
from compiler.passes.order import find_order_problems, find_ordering
from compiler.passes.pipeline import ANALYSES, DECISIONS, Context, Hook, run_passes
from compiler.passes.policies import POLICIES
from compiler.passes.presence import find_absent, find_gaps, find_idle_writes, find_lazy
from compiler.passes.select import runs_in, select_graph
from compiler.plan.notes import find_notes
from compiler.plan.plan import Plan
from compiler.timing.curves import declare_scheduled
from compiler.timing.firing_sets import enumerate_datasets, enumerate_patterns
from compiler.timing.gates import keep_firing
from compiler.timing.phases import find_phase_gates, map_cells
from compiler.timing.resolve import apply_pace, check_modes
from compiler.timing.units import Pace, complete_pace
from compiler.types.dimension import TensorType
from compiler.types.infer_types import Structure, find_structure, find_uncalled
from graphspec.analysis.datasets import UNNAMED, find_datasets
from graphspec.analysis.gradient_sets import find_gradient_sets
from graphspec.analysis.modes import find_modes, find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic, require_kind, sort_diagnostics

NO_AVERAGES: Mapping[str, str] = {}
"""No average stands in for its model."""
FIRST_CELLS: Mapping[str, str] = {}
"""Every optimizer is that of the first epoch."""


def compile_step(
    spec: GraphSpec,
    backend: str = "torch",
    order: str = "fewest",
    observed: Observations | None = None,
    hook: Hook | None = None,
    pace: Pace | None = None,
    *,
    pending: bool = False,
) -> Plan:
    """Compile a spec for a backend (``torch`` or ``tensorflow``) under an order policy.

    ``observed`` replaces assumptions about user classes by what a backend saw; ``hook`` is called after every pass;
    ``pace`` is what is known of the run, by which durations are counted (the spec's own batch and steps are known).
    With ``pending``, what needs a length that only a run knows is left out and listed in the plan, which can then be
    inspected but not built; otherwise it is an error.
    Imports nothing that the spec names. Raises SpecError with every error of the spec, and ValueError for a backend or
    policy that does not exist.

    >>> from graphspec import load
    >>> plan = compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml"))
    >>> print(plan.text().splitlines()[0])
    simultaneous-gan: train step for torch, order fewest
    >>> plan.warnings
    ()
    """
    require_kind(spec, GraphSpec, "`compile_step` takes a spec", "load it first: `compile_step(load(path))`")
    _require(backend, TABLES, "backend")
    _require(order, POLICIES, "order policy")
    known = complete_pace(spec, pace)
    timed = apply_pace(spec, known)
    context = Context(spec=timed.spec, table=TABLES[backend], policy=POLICIES[order])
    findings = Findings(spec=timed.spec)
    compilation = _Compilation(context=context, findings=findings, observed=observed, hook=hook, pace=known)
    findings.report((*check_backend(spec, backend), *check_terms(spec, backend)))
    findings.stop_on_errors()
    compilation.check_document()
    modes = tuple(compilation.compile_mode(mode) for mode in find_modes(spec.ops, spec.run.eval))
    structure = compilation.structure
    findings.report((*structure.problems, *check_dead(spec, compilation.live)))
    uncounted, left = check_durations(spec, timed, known, pending=pending)
    findings.report(uncounted)
    findings.report(each for mode in modes for each in check_modes(spec, mode.mode, mode.gates))
    findings.stop_on_errors()
    findings.report(find_uncalled(spec, compilation.lowered, compilation.models))
    findings.stop_on_errors()
    program = compilation.declare(modes, structure, order)
    findings.report(check_patterns(spec, find_known_names(program.models)))
    findings.stop_on_errors()
    return Plan(
        spec=spec,
        program=program,
        graphs=compilation.graphs,
        warnings=findings.in_order(),
        notes=find_notes(spec, compilation.models, find_counted(spec, "train", observed)),
        pace=known,
        types=structure.types,
        pending=sort_diagnostics(left),
    )


@dataclass(kw_only=True)
class _Compilation:
    """The state of one compilation: what was found so far, and every problem."""

    context: Context
    hook: Hook | None
    pace: Pace
    observed: Observations | None
    findings: Findings
    graphs: dict[str, StepGraph] = field(default_factory=dict[str, StepGraph])
    live: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    lowered: Mapping[str, Instruction] = field(default_factory=dict[str, Instruction])
    uneven: frozenset[str] = frozenset()
    """The built-in means in windows that rows do not count, once the shapes are known."""
    totals: frozenset[str] = frozenset()
    types: Mapping[str, TensorType] = field(default_factory=dict[str, TensorType])
    open: frozenset[str] = frozenset()
    """The losses whose operands have shapes that no declaration gives; shapes seen in a few batches do not count."""

    @cached_property
    def models(self) -> Mapping[str, ModelFacts]:
        """Return what is known about each model."""
        return describe_models(self.context.spec, self.observed)

    @cached_property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the parameters of the models whose structure is known."""
        spec, backend = self.context.spec, self.context.table.backend
        return find_known_names(declare_models(spec, self.models, self.structure, backend))

    def check_document(self) -> None:
        """Report what is wrong in every mode, regardless of what fires; raise SpecError where ops have no order."""
        scene = self.lower("train")
        self.lowered = scene.everything
        scene = replace(scene, nodes=scene.everything)
        for check in OWNERSHIP_CHECKS:
            self.findings.report(check(scene))
        self.findings.report(find_order_problems(scene.spec, scene.everything, scene.ordering))
        if any(problem.code == "E-CYCLE" for problem in self.findings.problems):
            self.findings.stop_on_errors()
        self.types = self.structure.types
        scene = replace(scene, types=self.types)
        for check in SCENE_CHECKS:
            self.findings.report(check(scene))
        self.uneven = find_uneven(scene.spec, {} if self.structure.problems else self.structure.elements)
        self.findings.report(check_split_counts(scene.spec, self.observed or Observations()))
        self.totals = find_totals(scene.spec, self.types)
        self.open = self._find_open()
        if self.uneven or self.totals or find_batch_sums(scene.spec, self.types) != find_batch_sums(scene.spec, {}):
            self.lowered = self.lower("train").everything
            del self.structure

    def _find_open(self) -> frozenset[str]:
        """Return the losses whose operands have shapes that the declarations alone cannot check."""
        if self.observed is None:
            return self.structure.open
        return find_structure(self.context.spec, self.lowered, describe_models(self.context.spec, None), None).open

    def lower(
        self,
        mode: Mode,
        averages: Mapping[str, str] = NO_AVERAGES,
        cells: Mapping[str, str] = FIRST_CELLS,
        resting: Resting = (),
    ) -> Scene:
        """Return the nodes of a mode, and those of the whole document as they are in that mode.

        ``averages``: model -> the average that is evaluated in its place; ``cells``: optimizer -> the one that steps in
        its place, at a later epoch; ``resting``: parameters that are frozen for now.
        """
        spec = self.context.spec
        reaches = find_reaches(spec.ops)
        sets = find_gradient_sets(spec.ops, spec.models)
        lowering = Lowering(
            spec=spec,
            mode=mode,
            backend=self.context.table.backend,
            models=self.models,
            reaches=reaches,
            sets=sets,
            gaps=find_gaps(spec, sets),
            lazy=find_lazy(spec),
            gathering=find_gathering(spec),
            counted=find_counted(spec, mode, self.observed, self.uneven),
            open=self.open,
            parted=is_parted(spec, mode),
            sums=find_batch_sums(spec, self.types),
            totals=self.totals,
            whole=find_whole(spec),
            judged=find_judged(spec),
            scaled=is_scaled(spec, mode, reaches),
            averages=averages,
            phases=cells,
            pace=self.pace,
            scheduled=declare_scheduled(spec, self.pace),
        )
        lowered = {node.id: node for name, op in spec.ops.items() for node in lower_op(name, op, lowering)}
        asleep = find_asleep(spec, resting, self.names) if resting else frozenset[str]()
        everything = rest(lowered, resting, asleep, spec, lowering.gaps)
        nodes = {name: node for name, node in everything.items() if runs_in(mode, node, reaches)}
        ordering = find_ordering(spec, everything)
        return Scene(
            spec=spec, models=self.models, nodes=nodes, sets=lowering.sets, everything=everything, ordering=ordering
        )

    def compile_mode(self, mode: Mode) -> ModeProgram:
        """Return the program of a mode; without functions where the mode has problems."""
        swaps = find_swaps(self.context.spec, mode)
        scene = self.lower(mode)
        turns = self._find_turns(scene, mode)
        patterns = self._find_patterns(turns)
        kept = keep_firing(turns.gates, (fired for _, fired in patterns), turns.anywhere)
        every = (*kept, *(Gate(op=swap.op, clock="averaged") for swap in swaps))
        graphs: list[StepGraph] = []
        problems = tuple(check_number(self.context.spec, mode, patterns, swaps))
        self.findings.report(problems)
        for used in () if problems else find_uses(swaps):
            for graph in self._compile_patterns(scene, mode, turns, patterns, map_models(used)):
                fired = {*graph.gated, *(swap.op for swap in used)}
                graphs.append(replace(graph, gated=tuple(gate.op for gate in every if gate.op in fired)))
        named = _name_functions(mode, graphs)
        self.graphs.update(named)
        functions = tuple(assemble(named[name], name) for name in named)
        return ModeProgram(mode=mode, gates=every, functions=functions, undecided=turns.undecided)

    def _find_turns(self, scene: Scene, mode: Mode) -> Turns:
        """Return the turns of a mode, with the gates of everything that changes during training."""
        parts = scene.spec, mode, scene.nodes
        changes = (*find_phase_gates(*parts, self.pace), *find_thaw_gates(*parts, self.pace))
        return Turns.of(*parts, changes, self.pace.epoch)

    def _compile_patterns(
        self,
        scene: Scene,
        mode: Mode,
        turns: Turns,
        patterns: tuple[tuple[str, frozenset[str]], ...],
        averages: Mapping[str, str],
    ) -> Iterator[StepGraph]:
        """Yield the scheduled graph of every set of ops of a mode that fire together, each once."""
        scenes: dict[tuple[object, ...], Scene] = {} if averages else {((), ()): scene}
        found: dict[tuple[object, ...], StepGraph] = {}
        looks: dict[tuple[object, ...], tuple[Scene, frozenset[str], Outputs]] = {}
        for dataset, fired in patterns:
            cells = map_cells(fired)
            resting = find_resting(self.context.spec, fired)
            place = tuple(cells.items()), resting
            whole = scenes.get(place) or self.lower(mode, averages, cells, resting)
            scenes[place] = whole
            look = turns.look(whole, dataset), fired, turns.outputs[dataset]
            graph = self._find_graph(look[0], mode, turns, fired, look[2])
            self.findings.report(check_numbers(whole, graph, dataset) if turns.are_named else ())
            key = graph.gated, tuple(graph.nodes), graph.outputs
            before = found.get(key, graph).datasets
            found[key] = replace(graph, datasets=(*before, dataset) if turns.are_named else ())
            looks.setdefault(key, look)
        for key, graph in found.items():
            analysed = self._analyse(graph)
            split = None if analysed is None else self._split(analysed, turns, *looks[key])
            scheduled = None if split is None else self._compile_graph(split)
            if scheduled is not None:
                yield scheduled

    def _split(
        self, graph: StepGraph, turns: Turns, scene: Scene, fired: frozenset[str], outputs: Outputs
    ) -> StepGraph:
        """Return a graph split into micro-batches; only train mode is split."""
        parted = self._part(scene, graph.mode, outputs)
        if parted is None:
            return graph
        resting = {gate.op for gate in turns.gates} - fired
        absent = find_absent(parted.scene.nodes, resting) | find_idle_writes(parted.scene.nodes, resting)
        copies = parted.find_firing(graph.nodes, outputs.values, absent)
        split = select_graph(parted.scene, graph.mode, copies, fired, turns.gates, outputs)
        merges = tuple(decision for name, decision in parted.merges.items() if name in graph.nodes)
        split = replace(split, decisions=merges, datasets=graph.datasets)
        return run_passes(split, ANALYSES[:2], self.context, self.hook)

    def _part(self, scene: Scene, mode: Mode, outputs: Outputs) -> Parted | None:
        """Return a scene split into micro-batches; None where it is not, or cannot be, split."""
        if mode != "train" or scene.spec.micro_batches == 1:
            return None
        reaches = find_reaches(scene.spec.ops)
        problems = tuple(check_batch(scene))
        self.findings.report(problems)
        if problems:
            return None
        parted = part_scene(scene, self.structure.types, outputs.values, lambda node: runs_in(mode, node, reaches))
        self.findings.report(check_coupled(scene, parted.coupled))
        return parted

    def _find_graph(self, scene: Scene, mode: Mode, turns: Turns, fired: frozenset[str], outputs: Outputs) -> StepGraph:
        """Return the graph of the ops that fire together, before any pass."""
        by_op = {gate.op: gate for gate in turns.gates}
        firing = find_firing(scene.nodes, outputs, by_op, fired)
        live = frozenset(scene.nodes[name].op for name in firing)
        self.live[mode] = self.live.get(mode, frozenset()) | live | find_sums(scene.spec, live)
        self.findings.report(find_absent_problems(scene.spec, scene.nodes, by_op, fired, firing))
        return select_graph(scene, mode, firing, fired, turns.gates, outputs)

    def _find_patterns(self, turns: Turns) -> tuple[tuple[str, frozenset[str]], ...]:
        """Return every pattern of gates with a data set that it is met on.

        Just that of all gates open where they never repeat in a reasonable time.
        """
        try:
            if turns.are_named:
                return enumerate_datasets(turns.gates, turns.always, turns.undecided)
            patterns = enumerate_patterns(turns.gates, turns.always[UNNAMED], turns.undecided)
            return tuple((UNNAMED, fired) for fired in patterns)
        except ValueError as error:
            span = span_of(self.context.spec, turns.gates[0].op, "every")
            help = "choose intervals with a small common multiple"
            self.findings.report([Diagnostic(code="E-CLOCKS", message=str(error), span=span, help=help)])
            return tuple((dataset, frozenset(gate.op for gate in turns.gates)) for dataset in turns.outputs)

    def _analyse(self, graph: StepGraph) -> StepGraph | None:
        """Return a graph with versions and paths, or None where it has errors (which are reported)."""
        spec = self.context.spec
        graph = run_passes(graph, ANALYSES[:2], self.context, self.hook)
        self.findings.report(contradictions := (*find_unordered_problems(spec, graph), *check_skip_scope(spec, graph)))
        if contradictions:
            return None
        for check in GRAPH_CHECKS:
            self.findings.report(check(spec, graph))
        self.findings.report(check_recomputed(spec, graph, self.context.table))
        return graph

    def _compile_graph(self, graph: StepGraph) -> StepGraph | None:
        """Return a scheduled graph, or None where it has errors (which are reported)."""
        spec = self.context.spec
        graph = run_passes(graph, ANALYSES[2:], self.context, self.hook)
        self.findings.report(graph.problems)
        if graph.problems:
            return None
        graph = run_passes(graph, DECISIONS, self.context, self.hook)
        self.findings.report(check_defer_never(spec, graph, graph.decisions))
        return graph

    def declare(self, modes: tuple[ModeProgram, ...], structure: Structure, order: str) -> Program:
        """Return the program: what it declares, and its modes."""
        spec, backend = self.context.spec, self.context.table.backend
        return Program(
            name=spec.name,
            backend=backend,
            order=order,
            seed=spec.seed,
            rng=spec.rng,
            inputs=declare_inputs(spec),
            models=declare_models(spec, self.models, structure, backend),
            optimizers=declare_optimizers(spec, backend, self.pace),
            modes=modes,
            states=declare_states(spec),
            loss_scale=declare_loss_scale(spec),
            datasets=find_datasets(spec),
        )

    @cached_property
    def structure(self) -> Structure:
        """Return types and layers, and the shapes that are certainly wrong."""
        return find_structure(self.context.spec, self.lowered, self.models, self.observed)


def _name_functions(mode: Mode, graphs: list[StepGraph]) -> dict[str, StepGraph]:
    """Return the graphs of a mode by the names of their functions; several are numbered."""
    if len(graphs) == 1:
        return {f"{mode}_step": graphs[0]}
    return {f"{mode}_step_{number}": graph for number, graph in enumerate(graphs, start=1)}


def _require(name: str, known: Mapping[str, object], what: str) -> None:
    """Raise ValueError for a name that is not in a table."""
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"no {what} '{name}': known are {', '.join(known)}{hint}")

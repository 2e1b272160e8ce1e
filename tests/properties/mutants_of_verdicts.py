"""Mutants of what gradients that are not finite stop: verdicts, groups, what follows them, windows, the loss scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from compiler.ir.instructions import AllFinite, AnyFinite, Commit, Instruction, ResolveOverflow, RestoreAccumulator
from compiler.ir.step_graph import Hazard, StepGraph
from compiler.lower.verdict import _find_raw
from compiler.passes.commits import both
from compiler.passes.schedule import is_update
from tests.properties import mutations as to
from tests.properties.mutant import Mutant

Find = Callable[[StepGraph], Iterable[tuple[Instruction, ...]]]


def stand_alone(found: Iterable[tuple[Instruction, ...]], *arguments: object) -> Iterator[tuple[Instruction, ...]]:
    """Put every update into a group of its own."""
    yield from ((node,) for group in found for node in group)


def stand_together(found: Iterable[tuple[Instruction, ...]], *arguments: object) -> Iterator[tuple[Instruction, ...]]:
    """Put all updates into one group."""
    yield tuple(node for group in found for node in group)


def hear_all_but_one(made: AllFinite, *arguments: object) -> AllFinite:
    """Combine all verdicts of a group but the last."""
    return replace(made, verdicts=made.verdicts[:-1])


def join_all_but_one(joined: tuple[Commit, Mapping[str, AnyFinite]], *arguments: object) -> tuple[Commit, Mapping]:
    """Join all ways but the first."""
    before, made = joined
    return before, {name: replace(each, ways=each.ways[1:]) for name, each in made.items()}


def hear_no_all(graph: StepGraph) -> tuple[StepGraph]:
    """Take `all` for `group`."""
    nodes = graph.nodes.items()
    heard = {name: replace(node, overflow="group") if node.overflow == "all" else node for name, node in nodes}
    return (replace(graph, nodes=heard),)


def hold_where_one_is(conditions: list[Commit]) -> Commit:
    """Hold what follows several writes where one of them is held."""
    found: Commit = ()
    for condition in conditions:
        found = both(found, condition)
    return found


def forget_pace(found: tuple[Instruction, ...], *arguments: object) -> tuple[Instruction, ...]:
    """Let nothing go by the steps of an update that is held."""
    return tuple(replace(node, gated_by="") for node in found)


def leave_scale(found: Iterator[ResolveOverflow], *arguments: object) -> Iterator[ResolveOverflow]:
    """Leave the loss scale as it is."""
    yield from (replace(each, scaled=False) for each in found)


def leave_windows(found: Iterator[ResolveOverflow], graph: StepGraph) -> Iterator[ResolveOverflow]:
    """Let only writes be skipped, and no steps of windows."""
    for each in found:
        yield replace(each, conditional=tuple(pair for pair in each.conditional if pair[0] in graph.active))


def settle_twice(found: Iterator[ResolveOverflow], *arguments: object) -> Iterator[ResolveOverflow]:
    """Let the loss scale follow every step twice."""
    yield from (each for each in found for _ in range(2))


def be_applied(takes_part: bool, node: Instruction) -> bool:
    """Return whether a node applies an update, in the place of whether it is what one does with its gradients."""
    return takes_part and is_update(node)


MUTANTS_OF_VERDICTS = (
    Mutant(
        name="no-verdict-edges",
        says="A write does not wait for the verdicts of other updates.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.VERDICT),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="last-verdict-unheard",
        says="What combines the verdicts of a group leaves out the last.",
        place="passes.commits:_combine",
        change=to.change(hear_all_but_one),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="first-way-unheard",
        says="What joins the ways in which earlier updates add the penalties leaves out the first.",
        place="lower.regularization:_join_ways",
        change=to.change(join_all_but_one),
        killer="numbers",
        case="penalized-often",
    ),
    Mutant(
        name="groups-of-one",
        says="Every update is skipped alone.",
        place="passes.commits:find_commit_groups",
        change=to.change(stand_alone),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="one-group",
        says="All updates of a step are one group, even if one sees what another wrote.",
        place="passes.commits:find_commit_groups",
        change=to.change(stand_together),
        killer="versions",
        case="in-turn",
    ),
    Mutant(
        name="all-as-group",
        says="`on_overflow: all` acts as `group`.",
        place="passes.commits:find_commit_groups",
        change=to.change_arguments(hear_no_all),
        killer="numbers",
        case="all-skipped",
    ),
    Mutant(
        name="own-as-group",
        says="`on_overflow: own` acts as `group`.",
        place="lower.verdict:find_overflow",
        change=to.give("group"),
        killer="numbers",
        case="written-twice",
    ),
    Mutant(
        name="held-sources-followed",
        says="Averages and copies of skipped updates are applied.",
        place="passes.commits:find_sources",
        change=to.give(()),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="held-if-any",
        says="An average is skipped if any of the writers of its source is.",
        place="passes.commits:either",
        change=lambda original: hold_where_one_is,
        killer="numbers",
        case="written-twice",
    ),
    Mutant(
        name="held-pace-followed",
        says="An op with `every: step` runs although the step is skipped.",
        place="passes.document:lower_op",
        change=to.change(forget_pace),
        killer="numbers",
        case="at-its-pace",
    ),
    Mutant(
        name="held-steps-expected",
        says="Clocks of averages assume that no update is skipped.",
        place="passes.datasets:find_conditional_ops",
        change=to.give(frozenset()),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="held-steps-counted",
        says="Clocks of averages count skipped updates.",
        place="runtime.codegen.dispatch:hold_lines",
        change=to.give(()),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="gathering-is-nothing",
        says="An update whose window only gathers does not happen before what comes after it.",
        place="passes.commits:takes_part",
        change=to.change(be_applied),
        killer="versions",
        case="gathered-in-turn",
    ),
    Mutant(
        name="windows-take-all",
        says="A window adds gradients that are not finite.",
        place="lower.accumulate:bind",
        change=lambda original: lambda node, verdict, overflow: node,
        killer="numbers",
        case="windows-with-holes",
    ),
    Mutant(
        name="windows-go-on",
        says="`on_nonfinite: window` drops only the step.",
        place="lower.accumulate:guard_of",
        change=to.give("drop"),
        killer="numbers",
        case="windows-with-holes",
    ),
    Mutant(
        name="verdicts-behind-transforms",
        says="A verdict covers only the gradients as applied.",
        place="lower.verdict:_find_checked_sets",
        change=lambda original: lambda sets, made, context: tuple(sets),
        killer="numbers",
        case="clipped-first",
    ),
    Mutant(
        name="verdicts-before-transforms",
        says="A verdict covers only the gradients as taken.",
        place="lower.verdict:_find_checked_sets",
        change=lambda original: _find_raw,
        killer="numbers",
        case="multiplied-by-infinity",
    ),
    Mutant(
        name="steep-penalties-unseen",
        says="The gradient of a regularizer is always assumed to be finite.",
        place="lower.verdict:KEEPING",
        change=lambda original: original | {"regularize"},
        killer="numbers",
        case="steep-penalty",
    ),
    Mutant(
        name="penalties-of-the-first-alone",
        says="The first update of a model adds the penalties even if it is skipped.",
        place="lower.regularization:assume",
        change=to.give(((),)),
        killer="numbers",
        case="penalized-next",
    ),
    Mutant(
        name="skipped-steps-taken",
        says="A window is taken in a step in which the update that it follows is skipped.",
        place="passes.select:_is_idle",
        change=lambda original: lambda node, conditions: isinstance(node, RestoreAccumulator),
        killer="numbers",
        case="gathered-at-its-pace",
    ),
    Mutant(
        name="skipped-steps-counted",
        says="A window counts the steps in which the update that it follows is skipped.",
        place="passes.assemble:_resolve",
        change=to.change(leave_windows),
        killer="numbers",
        case="gathered-at-its-pace",
    ),
    Mutant(
        name="penalties-of-each",
        says="Every update of a model that may be applied while the first is skipped adds the penalties.",
        place="lower.regularization:_add_unless",
        change=lambda original: lambda node, commit: node,
        killer="numbers",
        case="penalized-next",
    ),
    Mutant(
        name="scale-at-rest",
        says="The loss scale never changes.",
        place="passes.assemble:_resolve",
        change=to.change(leave_scale),
        killer="numbers",
        case="skipped-together",
    ),
    Mutant(
        name="scale-moved-twice",
        says="The loss scale is updated twice per step.",
        place="passes.assemble:_resolve",
        change=to.change(settle_twice),
        killer="numbers",
        case="in-turn",
    ),
    Mutant(
        name="early-updates-unheard",
        says="The host applies an optimizer again without asking whether its previous update stays.",
        place="runtime.backends.torch.codegen.verdicts:_find_counted",
        change=to.give(frozenset()),
        killer="numbers",
        case="counted-on",
    ),
    Mutant(
        name="windows-unheard",
        says="The host takes a window with missing gradients without asking which steps it took in.",
        place="runtime.backends.torch.codegen.verdicts:_is_open",
        change=to.give(False),
        killer="numbers",
        case="gathered-with-gaps",
    ),
)

"""Mutants of what must come before what, and of which version is read."""

from __future__ import annotations

from compiler.ir.step_graph import Hazard
from tests.properties import mutations as to
from tests.properties.mutant import Mutant

MUTANTS_OF_ORDER = (
    Mutant(
        name="no-war",
        says="A write does not wait for forwards that read the previous version.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.WAR),
        killer="numbers",
    ),
    Mutant(
        name="no-backward-war",
        says="A write does not wait for gradients through the previous version.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.BACKWARD_WAR),
        killer="numbers",
    ),
    Mutant(
        name="no-buffer-war",
        says="Buffers may be written before gradients through evaluations are taken.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.BUFFER_WAR),
        killer="numbers",
    ),
    Mutant(
        name="no-war-of-followers",
        says="Averages and copies do not wait for gradients through their target.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.BACKWARD_WAR, where=to.is_follower),
        killer="numbers",
    ),
    Mutant(
        name="no-raw-no-waw",
        says="Writes to a cell have no order.",
        place="passes.pipeline:find_hazards",
        change=to.drop(Hazard.RAW, Hazard.WAW),
        killer="numbers",
    ),
    Mutant(
        name="ema-early",
        says="Averages and copies may come before the writers of their source.",
        place="passes.order:find_sources",
        change=to.give(()),
        killer="numbers",
    ),
    Mutant(
        name="ema-after-one",
        says="Averages and copies come after only the first writer of each source.",
        place="passes.order:find_sources",
        change=to.change(to.keep_first),
        killer="numbers",
    ),
    Mutant(
        name="no-after",
        says="`after` counts only on writes.",
        place="passes.order:_declared_edges",
        change=to.change(to.without_forwards),
        killer="numbers",
    ),
    Mutant(
        name="no-edge-of-every",
        says="An op with `every: step` may come before the step.",
        place="passes.order:_declared_edges",
        change=to.change(to.without_every),
        killer="numbers",
    ),
    Mutant(
        name="after-not-through-data",
        says="A reader of a value does not see the writes that the op computing it sees.",
        place="ir.mode_graph:close_ordering",
        change=to.change_arguments(to.without_data),
        killer="versions",
    ),
    Mutant(
        name="absent-forgets",
        says="What came before an op that does not fire comes before nothing.",
        place="passes.functions:select_graph",
        change=to.change(to.forget_absent),
        killer="order",
    ),
    Mutant(
        name="no-edge-over-absent",
        says="The edges around an op that does not fire are omitted.",
        place="passes.order:_find_past_absent",
        change=to.give(()),
        killer="order",
    ),
    Mutant(
        name="read-too-old",
        says="Every read is one version too old.",
        place="passes.versions:_read_version",
        change=to.change(to.read_too_old),
        killer="versions",
    ),
    Mutant(
        name="newest-buffers",
        says="Evaluations read the statistics from the end of the step.",
        place="passes.versions:_read_version",
        change=to.change(to.read_newest_buffers),
        killer="numbers",
    ),
    Mutant(
        name="oldest-buffers",
        says="Evaluations read the statistics from the start of the step.",
        place="passes.versions:_read_version",
        change=to.change(to.read_oldest_buffers),
        killer="versions",
    ),
    Mutant(
        name="statistics-reversed",
        says="Train-mode forwards run from the last listed to the first.",
        place="passes.versions:order_statistics",
        change=to.change_arguments(to.turn_listing),
        killer="numbers",
    ),
    Mutant(
        name="untied",
        says="Models that share a weight are treated as unrelated.",
        place="facts.models:find_parameter_cells",
        change=to.change(to.untie),
        killer="numbers",
    ),
    Mutant(
        name="no-unordered-writes",
        says="Two writers without an order are accepted.",
        place="checks.versions:find_unordered",
        change=to.give(()),
        killer="mistakes",
    ),
    Mutant(
        name="no-snapshot",
        says="Buffers are not cloned to break a cycle.",
        place="passes.pipeline:resolve_cycles",
        change=to.change(to.without_clones),
        killer="numbers",
    ),
)

"""Every code that an audit knows: its level and what it means in a line; docs/audit has a page about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from graphspec.words import enumerate_words
from runtime.audit.findings import clips, gradients, graphs, owners, scales, train_and_eval, update_clocks, weights
from runtime.audit.findings.finding import LEVELS, Evidence, Finding, Level
from runtime.audit.trace import Trace


class Entry(NamedTuple):
    """What a code means."""

    level: Level
    summary: str
    others: tuple[Level, ...] = ()
    """Levels that some of its findings have instead."""

    @property
    def levels(self) -> str:
        """Return all of them in words."""
        return self.level + (f"; at times {enumerate_words(self.others)}" if self.others else "")


CODES: Mapping[str, Entry] = {
    "stale-read": Entry("error", "weights were written before a backward that still reads them"),
    "stale-read-unneeded": Entry("warning", "PyTorch refuses a backward whose weights were written, without need"),
    "stale-statistics": Entry("error", "statistics were written before a backward that still reads them"),
    "stale-value": Entry("error", "a value was overwritten in place before a backward that reads it"),
    "stale-cast": Entry("error", "autocast serves a copy of weights from before their update"),
    "recompute-differs": Entry("error", "a checkpointed forward is recomputed with other weights or random numbers"),
    "other-version": Entry("question", "a model is called again after its update, for another model's loss"),
    "leftover-grad": Entry("error", "an update applies gradients of an earlier backward"),
    "leaked-grad": Entry("error", "a loss reaches a model that it should not train", ("warning", "question")),
    "undetached-target": Entry("question", "the target of a regression depends on the weights that it trains"),
    "zeroed-grad": Entry("error", "gradients are zeroed between the backward and the update", ("warning",)),
    "lost-grad": Entry("waste", "gradients are computed that no update applies", ("warning",)),
    "grad-by-reference": Entry("error", "a gradient was taken without a copy, and a later backward adds to it"),
    "untrained": Entry("error", "weights that should learn get no update", ("warning", "question", "waste")),
    "shared-parameter": Entry("warning", "two optimizers, or one of them twice, step the same parameter", ("error",)),
    "frozen-moves": Entry("warning", "momentum or weight decay moves weights that have no gradient"),
    "clip-scope": Entry("warning", "one norm over the gradients of several optimizers"),
    "clip-order": Entry("error", "a clip before the gradient is complete, or after it was applied", ("warning",)),
    "clip-scaled": Entry("error", "a clip of gradients that carry the loss scale"),
    "scaled-step": Entry("error", "an update by gradients that carry the loss scale"),
    "unguarded-step": Entry("warning", "an update goes past the scaler, which would skip it for overflow"),
    "scaled-penalty": Entry("error", "a loss is made of gradients that carry the loss scale"),
    "unscaled-loss": Entry("error", "a scaler divides gradients whose loss was not scaled"),
    "scaler-update": Entry("error", "a scaler is updated at another time than once after all steps", ("warning",)),
    "partial-skip": Entry("warning", "one optimizer of a scaler skips a step that another takes"),
    "fused-skip": Entry("error", "a skipped step changes the state of a fused optimizer"),
    "schedule-order": Entry("warning", "a schedule ticks before the update of its step"),
    "schedule-clock": Entry("warning", "a schedule ticks without an update"),
    "ema-order": Entry("warning", "an average is taken before the update that it should include"),
    "ema-clock": Entry("warning", "an average moves although its source did not"),
    "ema-without-buffers": Entry("warning", "an average leaves out the buffers of its source"),
    "ema-partial": Entry("warning", "an average leaves out parameters of its source"),
    "target-trained": Entry("error", "an optimizer steps an average", ("question",)),
    "state-per-forward": Entry("warning", "state moves with every forward of a step"),
    "frozen-in-train-mode": Entry("warning", "a frozen model drops units, or its statistics move", ("question",)),
    "trained-in-eval-mode": Entry("question", "a model is trained in eval mode"),
    "evaluated-in-train-mode": Entry("question", "a forward that trains nothing moves statistics"),
    "crossing-graph": Entry("error", "a value carries its graph from one step into the next", ("waste",)),
    "freed-graph": Entry("error", "a second backward through a graph that the first one freed"),
    "needless-retain": Entry("waste", "retain_graph without a second backward"),
    "dead-term": Entry("warning", "a term of a loss is a constant", ("question",)),
    "cut-meta-gradient": Entry("question", "the gradient of an inner step is a constant"),
    "compiled-second-derivative": Entry("error", "a second derivative through a compiled model"),
    "ddp-forwards": Entry("error", "several forwards of a replicated model before their backwards"),
    "unreduced-grad": Entry("error", "gradients of a replicated model that are not reduced"),
    "no-sync-scope": Entry("waste", "no_sync around the backward only"),
}

Detector: TypeAlias = Callable[[Evidence], Iterable[Finding]]
DETECTORS: tuple[Detector, ...] = (
    weights.find_stale_reads,
    weights.find_overwritten_values,
    weights.find_stale_recomputations,
    weights.find_stale_casts,
    weights.find_alternations,
    gradients.find_applied_again,
    gradients.find_leftovers,
    gradients.find_leaks,
    gradients.find_mixtures,
    gradients.find_undetached_targets,
    gradients.find_zeroed,
    gradients.find_lost,
    gradients.find_references,
    gradients.find_aliased_states,
    owners.find_steps_without_gradient,
    owners.find_never_stepped,
    owners.find_orphans,
    owners.find_unreached,
    owners.find_unreached_parameters,
    owners.find_shared,
    owners.find_idle_moves,
    clips.find_clips,
    scales.find_scaled_updates,
    scales.find_unguarded_steps,
    scales.find_unscaled_losses,
    scales.find_scaled_penalties,
    scales.find_scaler_updates,
    scales.find_partial_skips,
    scales.find_fused_skips,
    update_clocks.find_schedules,
    update_clocks.find_average_clocks,
    update_clocks.find_left_out,
    update_clocks.find_trained_targets,
    update_clocks.find_state_per_forward,
    train_and_eval.find_frozen_in_train_mode,
    train_and_eval.find_trained_in_eval_mode,
    train_and_eval.find_left_in_eval_mode,
    train_and_eval.find_evaluated_in_train_mode,
    graphs.find_freed,
    graphs.find_needless_retains,
    graphs.find_kept,
    graphs.find_cuts,
    graphs.find_compiled_second_derivatives,
    graphs.find_replicas,
)


def find_all(trace: Trace) -> tuple[Finding, ...]:
    """Return everything that is found in a trace, each once, the worst first."""
    evidence = Evidence(trace)
    found: dict[object, Finding] = {}
    for detector in DETECTORS:
        for finding in detector(evidence):
            known = found.get(finding.key)
            found[finding.key] = finding if known is None else replace(known, times=known.times + 1)
    return tuple(sorted(found.values(), key=lambda each: (LEVELS.index(level_of(each)), each.place, each.code)))


def level_of(finding: Finding) -> Level:
    """Return the level of a finding."""
    return finding.level or CODES[finding.code].level

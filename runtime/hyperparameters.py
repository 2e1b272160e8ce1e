"""Hyper-parameters of optimizers in words: those of a checkpoint beside those that the spec gives now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from compiler.ir.program import OptimizerDecl
from compiler.ir.value import HyperParameter, ScheduleDecl
from compiler.plan.timetable import tell_schedule
from graphspec.graph import GraphSpec
from graphspec.rendering import to_plain
from graphspec.source import Path, Plain
from graphspec.words import spell_path
from runtime import state
from runtime.optimizer import Optimizer
from runtime.options import RATE

SECTION = "hyperparameters"
"""The section of a checkpoint that has them. It is there to be compared: none of it is ever restored."""
SETTINGS = "settings"
"""The section that has the numbers of models and ops that are no options of optimizers, to be compared likewise."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "models": ("groups", "regularizer", "constraint"),
    "ops": ("clip", "constraint", "decay", "tau", "half_life"),
    "precision": ("loss_scale",),
}
"""The fields that it has, by section of the document."""


def describe_optimizers(declared: tuple[OptimizerDecl, ...], held: Mapping[str, Optimizer]) -> dict[str, state.Plain]:
    """Return every option of every optimizer in words; a number that was set by hand in place of the spec's."""
    return {each.name: dict[str, state.Plain](_describe(each, held[each.name])) for each in declared}


def find_differences(saved: state.Plain, now: Mapping[str, state.Plain]) -> Iterator[str]:
    """Yield a sentence for every option that a checkpoint has otherwise; what it does not tell is not compared."""
    for name, options in now.items():
        before = saved.get(name) if isinstance(saved, dict) else None
        if isinstance(before, dict) and isinstance(options, dict):
            for key in dict.fromkeys((*options, *before)):
                was, is_now = before.get(key, WRITTEN), options.get(key, WRITTEN)
                is_told = (key in before and key in options) or any(
                    str(each).endswith(BY_HAND) for each in (was, is_now)
                )
                if was != is_now and is_told:
                    yield f"`{key}` of optimizer '{name}' was {was}, and is {is_now}"


def describe_settings(spec: GraphSpec) -> dict[str, state.Plain]:
    """Return groups, penalties, constraints, clips, decays of averages and the loss scale, by their places."""
    plain = to_plain(spec)
    found: dict[str, state.Plain] = {}
    for section, fields in FIELDS.items():
        written = cast("dict[str, Plain]", plain.get(section, {}))
        holders = {(section,): written} if section == "precision" else {(section, key): written[key] for key in written}
        for path, holder in holders.items():
            chosen = {name: holder[name] for name in fields if name in holder} if isinstance(holder, dict) else {}
            found.update(_spell_leaves(path, chosen))
    return found


def find_changes(saved: state.Plain, now: Mapping[str, state.Plain]) -> Iterator[str]:
    """Yield a sentence for every setting that a checkpoint has otherwise; one without settings is not compared."""
    if isinstance(saved, dict):
        for key in dict.fromkeys((*now, *saved)):
            before, after = saved.get(key, NOTHING), now.get(key, NOTHING)
            if before != after:
                yield f"`{key}` was {before}, and is {after}"


NOTHING = "nothing"
WRITTEN = "what the spec says"
BY_HAND = "(set by hand)"


def _spell_leaves(path: Path, value: Plain) -> Iterator[tuple[str, str]]:
    """Yield the places of everything in a value that is no mapping or list of mappings, and what is there."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _spell_leaves((*path, key), item)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _spell_leaves((*path, index), item)
    else:
        yield spell_path(path), repr(value)


def _describe(declared: OptimizerDecl, held: Optimizer) -> Iterator[tuple[str, str]]:
    """Yield the options of an optimizer in words, and what of its groups was set by hand."""
    by_hand = {**held.options.by_hand, **({RATE: held.learning_rate} if held.is_rate_set else {})}
    for key, value in declared.options.items():
        if key not in by_hand:
            yield key, _spell(value)
    yield from ((key, f"{value!r} {BY_HAND}") for key, value in by_hand.items())


def _spell(value: HyperParameter) -> str:
    """Return a value, or a schedule, in words."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_spell, value))})"
    return tell_schedule(value) if isinstance(value, ScheduleDecl) else repr(value)

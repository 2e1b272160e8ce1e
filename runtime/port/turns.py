"""Optimizers that step by several losses in turn, as by a lazy regularizer: each of these steps is an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runtime.audit.gradients import Applied, keep_ledger
from runtime.audit.trace import Place, Site, Update
from runtime.port.tape import Stepped, Tape


def split_turns(tape: Tape) -> tuple[Tape, Mapping[str, str]]:
    """Give the steps of an optimizer that never share a backward names of their own; return its name by these."""
    turns: dict[str, list[set[Site | Place]]] = {}
    updates = keep_ledger(tape.trace).updates
    for applied in updates:
        sites = _find_sites(applied)
        among = turns.setdefault(applied.event.optimizer, [])
        joined = [each for each in among if each & sites]
        if joined:
            joined[0].update(sites, *joined[1:])
            among[:] = [each for each in among if each not in joined[1:]]
        elif sites:
            among.append(sites)
    renamed: dict[int, str] = {}
    owners: dict[str, str] = {}
    for applied in updates:
        name = applied.event.optimizer
        turn = next((index for index, each in enumerate(turns[name]) if each & _find_sites(applied)), 0)
        if len(turns[name]) > 1:
            renamed[applied.position] = own = name if turn == 0 else f"{name}_{turn + 1}"
            owners[own] = name
    events = tuple(
        replace(each, optimizer=renamed[position]) if isinstance(each, Update) and position in renamed else each
        for position, each in enumerate(tape.trace.events)
    )
    entries = tuple(
        replace(each, optimizer=renamed[each.position])
        if isinstance(each, Stepped) and each.position in renamed
        else each
        for each in tape.entries
    )
    return replace(tape, trace=replace(tape.trace, events=events), entries=entries), owners


def _find_sites(applied: Applied) -> set[Site | Place]:
    """Return where the backwards ran whose gradients an update applies, and the forwards that they read.

    Losses of one forward are one loss, whether a step takes them in one backward or in several.
    """
    shares = (share for shares in applied.held.values() for share in shares)
    backwards = [share.backward for share in shares if share.backward is not None]
    return {each.site for each in backwards} | {read.place for each in backwards for read in each.reads}

"""Optimizers that step by several losses in turn, as by a lazy regularizer: each of these steps is an update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runtime.audit.gradients import Applied, keep_ledger
from runtime.audit.trace import Place, Site, Update
from runtime.port.tape import Called, Derived, Ran, Stepped, Tape, walk_back


def split_turns(tape: Tape) -> tuple[Tape, Mapping[str, str]]:
    """Give the steps of an optimizer that never share a backward names of their own; return its name by these."""
    turns: dict[str, list[set[Site | Place]]] = {}
    updates = keep_ledger(tape.trace).updates
    # By backward: the lines that call the models its loss is made with, where they record a graph.
    makers = {out: each for each in tape.entries if isinstance(each, Called | Ran | Derived) for out in each.outputs}
    calls: dict[int, frozenset[Place]] = {}
    for root in (each for each in tape.entries if isinstance(each, Derived)):
        values = walk_back(root.roots, lambda number: makers[number].given if number in makers else ())
        made = (makers[number] for number in values if number in makers)
        calls[root.backward] = frozenset(each.place for each in made if isinstance(each, Ran) and each.recorded)
    for applied in updates:
        sites = _find_sites(applied, calls)
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
        turn = next((index for index, each in enumerate(turns[name]) if each & _find_sites(applied, calls)), 0)
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


def _find_sites(applied: Applied, calls: Mapping[int, frozenset[Place]]) -> set[Site | Place]:
    """Return where the backwards ran whose gradients an update applies, and the forwards of their losses.

    Losses of one forward are one loss, whether a step takes them in one backward or in several. A forward is a call of
    a model, the lines of which are the same for every call; where a loss has none, it is what the backward reads.
    """
    shares = (share for shares in applied.held.values() for share in shares)
    found = set[Site | Place]()
    for each in (share.backward for share in shares if share.backward is not None):
        found |= {each.site, *(calls.get(each.number) or (read.place for read in each.reads))}
    return found

"""A difference between two plans as text: `+` is new, `-` is gone, `~` is different, `>` stands elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.difference.records import Alteration, Difference, FunctionChange, Move, Reason, Row, WholeFunction

SAME = "the schedule is the same: no instruction, decision or warning is different"


def tell_difference(difference: Difference) -> str:
    """Return a difference as text; one line where there is none."""
    if not difference:
        return f"{SAME}\n"
    blocks = [list(_tell_function(change)) for change in difference.functions if change]
    blocks.extend([_tell_whole("+", each)] for each in difference.whole.appeared)
    blocks.extend([_tell_whole("-", each)] for each in difference.whole.vanished)
    same = [f"{change.name}{_tell_name(change)}" for change in difference.functions if not change]
    blocks.extend([[f"{', '.join(same)}: the same"]] if same else [])
    blocks.append(list(_tell_warnings(difference)))
    return "\n".join("\n".join(block) + "\n" for block in blocks if block)


def _tell_function(change: FunctionChange) -> Iterator[str]:
    """Yield the lines of one function."""
    old, new = change.sizes
    size = f"{old} before" if old != new else "as before"
    yield f"{change.name}{_tell_name(change)}  ({new} instructions, {size})"
    yield from (_tell_row("-", row) for row in change.rows.vanished)
    yield from (_tell_row("+", row) for row in change.rows.appeared)
    yield from (line for each in change.altered for line in _tell_alteration(each))
    yield from _tell_moves(change.moved)
    yield from (_tell_reason("-", each) for each in change.decisions.vanished)
    yield from (_tell_reason("+", each) for each in change.decisions.appeared)


def _tell_name(change: FunctionChange) -> str:
    return f" (was {change.was})" if change.was != change.name else ""


def _tell_row(sign: str, row: Row) -> str:
    parts = (row.text, row.cells, f"[{', '.join(row.flags)}]" if row.flags else "")
    return f"  {sign} {row.kind:<10}{'  '.join(part for part in parts if part)}"


def _tell_alteration(each: Alteration) -> Iterator[str]:
    match each.aspect:
        case "reads" if each.before and each.after:
            yield f"  ~ {each.label} reads {each.after} instead of {each.before}"
        case "reads":
            yield (
                f"  ~ {each.label} reads {each.after}"
                if each.after
                else f"  ~ {each.label} no longer reads {each.before}"
            )
        case "call":
            yield f"  ~ {each.label} is {each.after}, was {each.before}"
        case "flags":
            old, new = _split(each.before), _split(each.after)
            changes = [f"+ {flag}" for flag in new if flag not in old] + [
                f"- {flag}" for flag in old if flag not in new
            ]
            yield f"  ~ {each.label} runs otherwise: {', '.join(changes)}"
    if each.why:
        yield f"      {each.why}"


def _split(flags: str) -> list[str]:
    return flags.split(", ") if flags else []


def _tell_moves(moves: tuple[Move, ...]) -> Iterator[str]:
    """Yield a line for every move that something asks for, and one line for those that came along."""
    bound = [move for move in moves if move.reasons or move.former]
    free = [move.label for move in moves if not (move.reasons or move.former)]
    for move in bound:
        sides = {"before": move.before, "after": move.after}
        where = [f"{side} {', '.join(labels)}" for side, labels in sides.items() if labels]
        yield f"  > {move.label} now comes {' and '.join(where)}"
        yield from (f"      {reason}" for reason in move.reasons)
        yield from (f"      no longer: {reason}" for reason in move.former if reason not in move.reasons)
    if free and bound:
        yield f"  > moved along: {', '.join(free)}"
    elif free:
        yield f"  > moved: {', '.join(free)}"
        yield "      no rule asks for it: what is needed at another time runs at another time"


def _tell_reason(sign: str, each: Reason) -> str:
    return f"  {sign} {each.code:<13}{each.text}"


def _tell_whole(sign: str, each: WholeFunction) -> str:
    end = "is new" if sign == "+" else "is gone"
    return f"{sign} {each.name} {end}: a {each.mode} step that writes {', '.join(each.writes) or 'nothing'}"


def _tell_warnings(difference: Difference) -> Iterator[str]:
    if difference.warnings:
        yield "warnings"
        yield from (_tell_reason("-", each) for each in difference.warnings.vanished)
        yield from (_tell_reason("+", each) for each in difference.warnings.appeared)
    if difference.notes:
        yield "notes"
        yield from (f"  - {note}" for note in difference.notes.vanished)
        yield from (f"  + {note}" for note in difference.notes.appeared)

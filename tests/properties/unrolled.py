"""Ops that hold others, at any depth, written out op by op, and back; without any code of the compiler.

:func:`unroll` follows the page of the language: names of iterations and alternatives, who comes after whom, which rows
an iteration reads. :func:`fold` is its inverse: a random spec is drawn written out, as the oracle is given it, and
compiled as it would be written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.properties.causality import defined

Op = Mapping[str, Any]
Ops = Mapping[str, Op]
HOLDERS = ("repeat", "choose", "sometimes", "use")
WRITERS = ("update", "ema", "copy", "assign")
CLOCKS = ("start", "until")
BLOCK = "lot"
"""The name of a block of which the ops of a part may be a use, and of that use."""
NAMES = ("inputs", "loss", "gradient", "gradients", "wrt", "like", "forward", "adapt", "value")
"""Fields of an op in which names stand; those of models are left as they are."""
KINDS = ("loss",)
"""Fields that are a name of a function where they are the kind of the op."""


def is_holder(op: Op) -> bool:
    """Return whether an op holds others."""
    return any(key in op for key in HOLDERS)


@dataclass(frozen=True, kw_only=True)
class _Around:
    """What holds for the ops of one iteration or alternative; of all others: nothing."""

    prefix: str = ""
    known: Mapping[str, str] = field(default_factory=dict)
    """By the names that its ops have there: their names."""
    within: tuple[Op, ...] = ()
    after: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The mode and the data sets of all its ops."""
    clock: Mapping[str, Any] = field(default_factory=dict)
    """When those of its ops run that write."""
    outer: _Around | None = None
    holder: str = ""
    op: Op = field(default_factory=dict)
    number: int = 0


def unroll(
    ops: Ops, inputs: Iterable[str], values: Iterable[str] = ()
) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[str, int]]]:
    """Return ops with those that others hold written out, and inputs of earlier batches: of which, and the number.

    ``inputs`` are those of the document, ``values`` what else there is outside; all of it has rows.
    """
    unroller = _Unroller({*inputs}, {*values})
    unroller.write(ops, _Around())
    return unroller.finish(), unroller.batches


class _Unroller:
    """Writes ops out, from the outside in."""

    def __init__(self, inputs: set[str], values: set[str]) -> None:
        self.inputs, self.values = inputs, values
        self.ops: dict[str, dict[str, Any]] = {}
        self.made: set[str] = set()
        """Ops that are outputs of others, or cut their rows: nothing waits for them."""
        self.batches: dict[str, tuple[str, int]] = {}
        self.last: dict[str, tuple[str, ...]] = {}
        """By holder: how the names of the ops begin that are there when it is over."""

    def write(self, ops: Ops, around: _Around) -> None:
        """Write the ops of one part out."""
        for name, op in ops.items():
            if is_holder(op):
                self._open(f"{around.prefix}{name}", op, around)
            else:
                self.ops[f"{around.prefix}{name}"] = self._bind(op, around)

    def finish(self) -> dict[str, dict[str, Any]]:
        """Return all ops; what comes after a holder comes after the ops of its last iteration, or all alternatives."""
        for op in self.ops.values():
            if "after" in op:
                after = dict.fromkeys(each for name in op["after"] for each in self._find_last(name))
                op["after"] = list(after)
        return self.ops

    def _find_last(self, name: str) -> Iterator[str]:
        if name not in self.last:
            yield name
            return
        yield from (each for each in self.ops if each.startswith(self.last[name]) and each not in self.made)

    def _open(self, name: str, op: Op, around: _Around) -> None:
        if "use" in op:  # its ops stand in it, and read what is outside by the names that it has there
            prefix = f"{name}."
            inside = replace(
                around, prefix=prefix, known=_find_names(op["ops"], prefix), outer=around, holder="", op={}
            )
            self.write(op["ops"], inside)
            return
        parts = [*_find_parts(name, op)]
        is_next = op.get("batch") == "next"
        fields = {**around.fields, **_pick(op, "dataset"), **({"mode": "train"} if is_next else {})}
        after = (*(self._resolve(each, around) for each in op.get("after", ())), *around.after)
        self.last[name] = tuple(f"{name}.{part['number']}." for part, _ in parts)[-1 if "repeat" in op else 0 :]
        before: tuple[str, ...] = ()
        for part, ops in parts:
            prefix = f"{name}.{part['number']}."
            inside = _Around(
                prefix=prefix,
                known=_find_names(ops, prefix),
                within=(*around.within, part),
                after=(*after, *before),
                fields=fields,
                clock={**around.clock, **_pick(op, *CLOCKS)},
                outer=around,
                holder=name,
                op=op,
                number=part["number"],
            )
            self.write(ops, inside)
            if "repeat" in op:
                written = [each for each in self.ops if each.startswith(prefix) and each not in self.made]
                before = tuple(each for each in written if any(kind in self.ops[each] for kind in WRITERS))
            elif "sometimes" in op and part["number"] == 2:
                for output, value in op["else"].items():
                    given = {"inputs": [self._resolve(value, around)], **fields, "within": [*inside.within]}
                    self._make(f"{prefix}{output}", {"call": "either", **given})
        for output in op.get("outputs", op.get("else", ())):
            values = [f"{name}.{part['number']}.{output}" for part, _ in parts]
            call = "stack" if "repeat" in op else "either"
            self._make(f"{name}.{output}", {"call": call, "inputs": values, **fields, **_within(around)})

    def _make(self, name: str, op: dict[str, Any]) -> None:
        self.ops[name] = op
        self.made.add(name)

    def _bind(self, op: Op, around: _Around) -> dict[str, Any]:
        found = {key: self._rename(key, value, op, around) for key, value in op.items() if key != "after"}
        if any(kind in op for kind in WRITERS):
            found |= around.clock
        found |= around.fields
        own = [self._resolve(each, around) for each in op.get("after", ())]
        after = {"after": [*own, *around.after]} if own or around.after else {}
        return {**found, **after, **_within(around)}

    def _rename(self, key: str, value: Any, op: Op, around: _Around) -> Any:
        if key not in NAMES or (key in KINDS and not {"update", "adapt"} & op.keys()):
            return value
        if isinstance(value, list):
            return [self._resolve(each, around) if isinstance(each, str) else each for each in value]
        return self._resolve(value, around) if isinstance(value, str) else value

    def _resolve(self, name: str, around: _Around | None) -> str:
        """Return what a name means: that of an op nearby, of one further out, or of all rows, or a part of them."""
        if around is None or name in around.known:
            return name if around is None else around.known[name]
        value = self._resolve(name, around.outer)
        batch = around.op.get("batch")
        if batch == "split" and any(value in each for each in (self.inputs, self.values, self.batches, self.ops)):
            self._cut(name, value, around)
            return f"{around.prefix}{name}"
        if batch == "next" and value in self.inputs and around.number < _count(around.op):
            self.batches[f"batch_{around.number}.{value}"] = value, around.number
            return f"batch_{around.number}.{value}"
        return value

    def _cut(self, short: str, value: str, around: _Around) -> None:
        """Make the ops that cut the rows of a value: one, or one for every number of iterations there is."""
        name, count, outer = around.holder, _count(around.op), around.outer
        held = {**around.fields, **_within(outer)} if outer is not None else {}
        outputs = [f"{name}.{number}.{short}" for number in range(1, count + 1)]
        if isinstance(around.op["repeat"], int):
            self._make(f"{name}.rows.{short}", {**_split(value, outputs), **held})
            return
        before = [*(outer.within if outer is not None else ())]
        for parts, clock in ((1, {"until": 1}), (count, {"start": 2})):
            names = [f"{name}.rows.{parts}.{short}.{number}" for number in range(1, parts + 1)]
            stage = {"repeat": f"{name}.rows", "number": parts, "count": count, **clock}
            self._make(f"{name}.rows.{parts}.{short}", {**_split(value, names), **held, "within": [*before, stage]})
        for part, _ in _find_parts(name, around.op):
            number = part["number"]
            made = [f"{name}.rows.{parts}.{short}.{number}" for parts in (1, count) if parts >= number]
            either = {"call": "either", "inputs": made, **held, "within": [*before, part]}
            self._make(f"{name}.{number}.{short}", either)


def _count(op: Op) -> int:
    """Return how many iterations an op has at most: those of a schedule begin with one, in the first step alone."""
    return op["repeat"] if isinstance(op["repeat"], int) else op["repeat"]["at"]["1"]


def _find_parts(name: str, op: Op) -> Iterator[tuple[dict[str, Any], Ops]]:
    """Yield what the ops of every part say of it, and the ops."""
    if "repeat" in op:
        count = _count(op)
        for number in range(1, count + 1):
            late = {"start": 2} if number > 1 and not isinstance(op["repeat"], int) else {}
            yield {"repeat": name, "number": number, "count": count, **late}, op["ops"]
        return
    held = op["choose"] if "choose" in op else [{"p": op["sometimes"], "ops": op["ops"]}, {"p": None, "ops": {}}]
    low = 0.0
    for number, each in enumerate(held, start=1):
        high = 1.0 if number == len(held) else low + each["p"]
        yield {"choose": name, "number": number, "count": len(held), "low": low, "high": high}, each["ops"]
        low = high


def _find_names(ops: Ops, prefix: str) -> dict[str, str]:
    """Return what the names in one part mean."""
    found = {}
    for name, op in ops.items():
        given = op["ops"] if "use" in op else op.get("outputs", op.get("else", ()))
        values = [f"{name}.{each}" for each in given] if is_holder(op) else defined(name, op)
        found |= {each: f"{prefix}{each}" for each in (name, *values)}
    return found


def _within(around: _Around) -> dict[str, Any]:
    return {"within": [*around.within]} if around.within else {}


def _split(value: str, outputs: list[str]) -> dict[str, Any]:
    return {"call": "split_rows", "inputs": value, "args": {"count": len(outputs)}, "outputs": outputs}


def _pick(op: Op, *keys: str) -> dict[str, Any]:
    return {key: op[key] for key in keys if key in op}


# ---------------------------------------------------------------- and back


def fold(ops: Ops, stem: str, inputs: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return ops with those whose names begin with a stem in one op that holds them, which has that name.

    They stay as they are where they are not what such an op means, as where something was taken away from them.
    """
    mine = {name: op for name, op in ops.items() if name.startswith(f"{stem}.")}
    rest = {name: dict(op) for name, op in ops.items() if name not in mine}
    try:
        folded = _Folder(mine).fold(stem, 0, (), frozenset())
        values = [value for name, op in rest.items() for value in defined(name, op)]
        again, _ = unroll({stem: folded}, inputs, values)
    except (KeyError, IndexError, StopIteration):
        return {**rest, **{name: dict(op) for name, op in mine.items()}}
    if _plain(again) != _plain(mine):
        return {**rest, **{name: dict(op) for name, op in mine.items()}}
    last = _find_ends(again, stem, folded)
    for name, op in rest.items():
        if last and last <= {*(op.get("after") or ())}:
            rest[name] = {**op, "after": [stem, *(each for each in op["after"] if each not in last)]}
    return {**rest, stem: folded}


def _plain(ops: Ops) -> dict[str, Any]:
    """Return ops in a form in which lists of predecessors have no order."""
    return {
        name: {key: sorted(value) if key == "after" else value for key, value in op.items()} for name, op in ops.items()
    }


def _find_ends(ops: Ops, name: str, op: Op) -> set[str]:
    """Return the ops that are there when a holder is over, but for those that are made of others."""
    numbers = [part["number"] for part, _ in _find_parts(name, op)][-1 if "repeat" in op else 0 :]
    starts = tuple(f"{name}.{number}." for number in numbers)
    return {each for each in ops if each.startswith(starts) and not is_made(each, ops)}


def is_made(name: str, ops: Ops) -> bool:
    """Return whether an op is an output of a holder, or cuts the rows of one."""
    op = ops[name]
    return op.get("call") in ("stack", "either", "split_rows")


class _Folder:
    """Folds ops, from the outside in."""

    def __init__(self, ops: Ops) -> None:
        self.ops = ops

    def fold(
        self, holder: str, depth: int, prefixes: tuple[str, ...], implied: frozenset[str], held: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return a holder: ``implied`` is what all of its ops come after anyway, ``held`` what they do not say."""
        members = {
            name: op
            for name, op in self.ops.items()
            if len(op.get("within", ())) > depth and _of(op["within"][depth]) == holder
        }
        parts: dict[int, dict[str, Op]] = {}
        for name, op in members.items():
            parts.setdefault(op["within"][depth]["number"], {})[name] = op
        first = next(op["within"][depth] for op in members.values())
        template = parts if "choose" in first else {1: parts[1]}
        real = [op for part in template.values() for name, op in part.items() if not is_made(name, self.ops)]
        common = frozenset.intersection(*(frozenset(op.get("after", ())) for op in real)) - implied
        whole: dict[str, Any] = {}
        if common:
            whole["after"] = self._follow(common, prefixes, holder)
        if depth == 0:
            for op in real:
                whole |= _pick(op, "dataset") | (_pick(op, *CLOCKS) if set(WRITERS) & op.keys() else {})
        outputs = [
            name.removeprefix(f"{holder}.") for name, op in self.ops.items() if name.rpartition(".")[0] == holder
        ]
        inner = implied | common
        if "repeat" in first:
            is_growing = any("start" in op["within"][depth] for op in members.values())
            count = first["count"]
            whole["repeat"] = {"schedule": "piecewise", "at": {"0": 1, "1": count}} if is_growing else count
            whole |= (batch := self._find_batch(holder, parts))
            held = ("mode",) if batch == {"batch": "next"} else held
            whole["ops"] = self._fold_part(f"{holder}.1.", parts[1], depth + 1, prefixes, inner, held)
        elif all(is_made(name, self.ops) and op["call"] == "either" for name, op in parts[2].items()):
            whole["sometimes"] = first["high"] if first["number"] == 1 else first["low"]
            whole["ops"] = self._fold_part(f"{holder}.1.", parts[1], depth + 1, prefixes, inner, held)
            whole["else"] = {
                name.removeprefix(f"{holder}.2."): self._strip(op["inputs"][0], prefixes)
                for name, op in parts[2].items()
            }
            return whole
        else:
            shares = {part["number"]: part for op in members.values() for part in [op["within"][depth]]}
            whole["choose"] = [
                {
                    "p": shares[number]["high"] - shares[number]["low"],
                    "ops": self._fold_part(f"{holder}.{number}.", parts[number], depth + 1, prefixes, inner, held),
                }
                for number in sorted(parts)
            ]
        return {**whole, "outputs": outputs} if outputs else whole

    def _find_batch(self, holder: str, parts: Mapping[int, Ops]) -> dict[str, str]:
        """Return which rows the iterations of an op read."""
        if any(name.startswith(f"{holder}.rows.") for name in self.ops):
            return {"batch": "split"}
        early = ["batch_1." in repr([op.get("inputs") for op in parts[number].values()]) for number in (1, 2)]
        return {"batch": "next"} if early == [True, False] else {}

    def _fold_part(
        self,
        prefix: str,
        ops: Ops,
        depth: int,
        prefixes: tuple[str, ...],
        implied: frozenset[str],
        held: tuple[str, ...],
    ) -> dict[str, dict[str, Any]]:
        """Return the ops of one iteration or alternative by the names that they have there."""
        inside, found = (prefix, *prefixes), dict[str, dict[str, Any]]()
        holders = dict.fromkeys(_of(op["within"][depth]) for op in ops.values() if len(op["within"]) > depth)
        holders = [each for each in holders if not each.endswith(".rows")]
        for name, op in ops.items():
            is_output = is_made(name, self.ops) and name.rpartition(".")[0] in holders
            is_cut = op.get("call") == "split_rows" or ".rows." in repr(op.get("inputs"))
            if len(op["within"]) > depth or is_output or is_cut:
                continue
            if name.startswith(f"{prefix}{BLOCK}."):
                continue
            left = ("within", "after", "dataset", *CLOCKS, *held)
            kept = {key: self._local(key, op, inside) for key in op if key not in left}
            own = [each for each in op.get("after", ()) if each not in implied]
            after = self._follow(own, inside, *holders)
            found[name.removeprefix(prefix)] = {**kept, **({"after": after} if after else {})}
        used = {name: op for name, op in ops.items() if name.startswith(f"{prefix}{BLOCK}.")}
        if used:
            inner = self._fold_part(f"{prefix}{BLOCK}.", used, depth, inside, implied, held)
            found[BLOCK] = {"use": BLOCK, "ops": inner}
        for holder in holders:
            found[holder.removeprefix(prefix)] = self.fold(holder, depth, inside, implied, held)
        return found

    def _follow(self, names: Iterable[str], prefixes: tuple[str, ...], *holders: str) -> list[str]:
        """Return what an op comes after by the names it has there; all of a holder's ops are the holder."""
        left, found = list(names), []
        siblings = {
            _of(part)
            for op in self.ops.values()
            for part in op.get("within", ())
            if prefixes and _of(part).startswith(prefixes[0])
        }
        for holder in sorted({*siblings, *holders} - {""}):
            ends = self._find_ends(holder)
            if ends and ends <= {*left}:
                left = [each for each in left if each not in ends]
                found.append(self._strip(holder, prefixes))
        return [*found, *(self._strip(each, prefixes) for each in left)]

    def _find_ends(self, holder: str) -> set[str]:
        parts = [part for op in self.ops.values() for part in op.get("within", ()) if _of(part) == holder]
        if not parts:
            return set()
        starts = (f"{holder}.{parts[0]['count']}.",) if "repeat" in parts[0] else (f"{holder}.",)
        return {name for name in self.ops if name.startswith(starts) and not is_made(name, self.ops)}

    def _local(self, key: str, op: Op, prefixes: tuple[str, ...]) -> Any:
        value = op[key]
        if isinstance(value, list):
            return [self._strip(each, prefixes) if isinstance(each, str) else each for each in value]
        return self._strip(value, prefixes) if isinstance(value, str) else value

    def _strip(self, name: str, prefixes: tuple[str, ...]) -> str:
        """Return a name as it stands in a part: without what it begins with, or the number of the batch."""
        start = next((each for each in prefixes if name.startswith(each)), "")
        first, dot, rest = name.removeprefix(start).partition(".")
        return rest if first.startswith("batch_") and dot else f"{first}{dot}{rest}"


def _of(part: Op) -> str:
    """Return the op that a part is one of."""
    return part.get("repeat") or part["choose"]
